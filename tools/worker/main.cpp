#include "jit/compiler.h"

int main() { return xqajit::worker_main(); }
