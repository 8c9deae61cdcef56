// The flags that describe one shape. The library's parser judges names and values; this table only says how each is written.
#pragma once

#include <deque>

#include "cli.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace xqajit::cli {

// Adds a flag for every field of a shape to a subcommand, and gathers the ones that were given.
class ShapeFlags {
public:
    explicit ShapeFlags(CLI::App& command);
    std::vector<ShapeFlag> given() const;

private:
    struct Slot {
        std::string field;
        std::string value;
        CLI::Option* option;
    };
    std::deque<Slot> slots_;  // the parser keeps references into it
};

}  // namespace xqajit::cli
