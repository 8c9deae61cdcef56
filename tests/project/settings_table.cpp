// Prints the README's settings table.
#include <cstdio>

#include "base/settings.h"

int main() { std::fputs(xqajit::settings_markdown().c_str(), stdout); }
