// From a message to JSON, by the message's own descriptor (config_schema.h).
#pragma once

#include "services/common/config_json.h"

namespace google::protobuf {
class Message;
}

namespace weft {

// Every key of the message in the order of the .proto file: what is absent is null where that is
// allowed, else left out. `pbg_only`: without Weft's own keys.
JsonNode WriteMessage(const google::protobuf::Message& message, bool pbg_only);

}  // namespace weft
