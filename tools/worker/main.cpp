#include "../standard_streams.h"
#include "jit/compiler.h"

int main() { return xqajit::open_standard_streams() ? xqajit::worker_main() : 1; }
