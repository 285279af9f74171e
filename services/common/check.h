// WEFT_CHECK ends the process when an invariant of our own code is broken. What a user, a file, a
// disk or a peer can cause is an absl::Status instead.
#pragma once

#include <cstdio>
#include <cstdlib>

#define WEFT_CHECK(condition)                                                            \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#ifdef NDEBUG
#define WEFT_DCHECK(condition) \
  do {                         \
  } while (false && (condition))
#else
#define WEFT_DCHECK(condition) WEFT_CHECK(condition)
#endif
