#include "cli/commands.h"

int main(int argc, char** argv) { return weft::cli::Main(argc, argv); }
