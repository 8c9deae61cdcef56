// The fake's functions and what they share. A function holds the state's lock from ENTER on.
#pragma once

#include "driver/cuda_functions.h"
#include "state.h"

#define ENTER(function)               \
    fake::Call const call(#function); \
    if (call.injected() != CUDA_SUCCESS) return call.injected()

namespace fake {

// fake_cuInit, ... : declared from the list, so that each has the driver's own type.
#define XQAJIT_DECLARE(name) decltype(::name) fake_##name;
XQAJIT_CUDA_FUNCTIONS(XQAJIT_DECLARE)
#undef XQAJIT_DECLARE

inline State& s() { return state(); }

CUcontext current();
bool is_default(CUstream stream);
CUcontext context_of(CUstream stream);            // null for a bad handle, or no current context
CUresult check_capture();                         // for calls that a capture forbids; invalidates it
CUresult submit(CUstream stream, FakeNode node);  // runs it now, or keeps it for the graph that the stream is capturing

}  // namespace fake
