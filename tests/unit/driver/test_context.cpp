#include <thread>

#include "fixture.h"

namespace xqajit::driver {
namespace {

// A stream of a context that is not current afterwards.
CUstream stream_in(CUcontext context) {
    ScopedContext const scope = must(ScopedContext::enter(context));
    CUstream stream = nullptr;
    if (cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) throw std::runtime_error("cuStreamCreate");
    return stream;
}

CUcontext current() {
    CUcontext context = nullptr;
    cuda().cuCtxGetCurrent(&context);
    return context;
}

}  // namespace

TEST_CASE("the architecture is the context's device's, not the first device's", "[driver][J19]") {
    fake().set_devices("12.0,8.6");
    CUcontext const second = fake().create_context(1);
    REQUIRE(cuda().cuCtxSetCurrent(second) == CUDA_SUCCESS);
    ContextInfo const& info = *must(context_of(nullptr));
    CHECK(info.device == 1);
    CHECK(info.context == second);
    CHECK(info.arch.sm == 86);
    CHECK(info.arch.target == "sm_86");
    CHECK(info.device_name == "Fake GPU 1 (8.6)");
    CHECK(info.device_uuid == "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01");
    CHECK(must(current_context()) == &info);
}

TEST_CASE("one process serves unlike devices, each stream with its own device's facts", "[driver][J19]") {
    struct Row {
        char const* list;
        std::uint32_t sm, sm_count, smem_optin;
    };
    Row const rows[] = {{"12.0", 120, 170, 101376}, {"8.6", 86, 84, 101376}, {"9.0:78", 90, 78, 232448}, {"8.0", 80, 108, 166912}};
    std::string list;
    for (Row const& row : rows) list += std::string(list.empty() ? "" : ",") + row.list;
    fake().set_devices(list.c_str());
    std::vector<CUstream> streams;
    for (int device = 0; device < static_cast<int>(std::size(rows)); ++device)
        streams.push_back(stream_in(fake().create_context(device)));
    for (int pass = 0; pass < 2; ++pass) {  // read, then kept
        for (std::size_t i = 0; i < std::size(rows); ++i) {
            ContextInfo const& info = *must(context_of(streams[i]));
            CHECK(info.device == static_cast<int>(i));
            CHECK(info.arch.sm == rows[i].sm);
            CHECK(info.arch.sm_count == rows[i].sm_count);
            CHECK(info.arch.smem_optin == rows[i].smem_optin);
            CHECK(current() == nullptr);  // left as it was
        }
    }
}

TEST_CASE("a known context costs one cuStreamGetCtx and one cuCtxGetId", "[driver]") {
    CUstream const stream = stream_in(fake().create_context(0));
    ContextInfo const* const first = must(context_of(stream));
    fake().reset_calls();
    CHECK(must(context_of(stream)) == first);
    CHECK(fake().calls("cuStreamGetCtx") == 1);
    CHECK(fake().calls("cuCtxGetId") == 1);
    CHECK(fake().total_calls() == 2);
}

TEST_CASE("a new context at a dead one's address is not taken for it", "[driver]") {
    fake().set_devices("9.0,8.6");
    CUcontext const old_context = fake().create_context(0);
    REQUIRE(cuda().cuCtxSetCurrent(old_context) == CUDA_SUCCESS);
    ContextInfo const& old_info = *must(context_of(nullptr));
    REQUIRE(cuda().cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
    fake().destroy_context(old_context);
    CUcontext const new_context = fake().create_context(1);
    REQUIRE(new_context == old_context);
    REQUIRE(cuda().cuCtxSetCurrent(new_context) == CUDA_SUCCESS);
    ContextInfo const& info = *must(context_of(nullptr));
    CHECK(info.id != old_info.id);
    CHECK(info.arch.sm == 86);
    CHECK(old_info.arch.sm == 90);  // still valid for whoever kept it
}

TEST_CASE("many contexts, asked for from many threads, each keep one set of facts", "[driver]") {
    constexpr int kContexts = 200;  // more than the cache has buckets
    std::vector<CUcontext> contexts;
    std::vector<CUstream> streams;
    for (int i = 0; i < kContexts; ++i) {
        contexts.push_back(fake().create_context(0));
        streams.push_back(stream_in(contexts.back()));
    }
    std::vector<std::vector<ContextInfo const*>> seen(4);
    std::vector<std::thread> threads;
    for (auto& mine : seen)
        threads.emplace_back([&] {
            for (CUstream const stream : streams) mine.push_back(must(context_of(stream)));
        });
    for (std::thread& thread : threads) thread.join();
    for (auto const& mine : seen) CHECK(mine == seen[0]);
    for (std::size_t i = 0; i < contexts.size(); ++i) {
        CHECK(seen[0][i]->context == contexts[i]);
        CHECK(must(context_of(streams[i])) == seen[0][i]);
    }
}

TEST_CASE("without a current context the default stream is refused, with what to do", "[driver]") {
    REQUIRE(open_cuda().ok());
    for (Status const& status : {context_of(nullptr).status(), current_context().status()}) {
        CHECK(status.code() == XQAJIT_UNAVAILABLE);
        CHECK(contains(status.message(), "no CUDA context is current on this thread"));
    }
}

TEST_CASE("an invalid stream and a failing fact are driver errors that name the call", "[driver]") {
    CUstream const stream = stream_in(fake().create_context(0));
    for (char const* function : {"cuStreamGetCtx", "cuCtxGetId", "cuCtxPushCurrent", "cuCtxGetDevice", "cuDeviceGetAttribute",
                                 "cuDeviceGetName", "cuDeviceGetUuid"}) {
        fake().fail(function, CUDA_ERROR_INVALID_HANDLE);
        Status const status = context_of(stream).status();
        INFO(function << ": " << status.message());
        CHECK(status.code() == XQAJIT_DRIVER_ERROR);
        CHECK(contains(status.message(), function));
        CHECK(contains(status.message(), "CUDA_ERROR_INVALID_HANDLE (400): invalid resource handle"));
        fake().fail(function, CUDA_SUCCESS);
    }
    CHECK(context_of(stream).ok());  // nothing half-read was kept
}

TEST_CASE("a scoped context is current inside and the earlier one after, also when moved", "[driver]") {
    CUcontext const outer = fake().create_context(0);
    CUcontext const inner = fake().create_context(0);
    REQUIRE(cuda().cuCtxSetCurrent(outer) == CUDA_SUCCESS);
    {
        ScopedContext scope = must(ScopedContext::enter(inner));
        ScopedContext const moved = std::move(scope);
        CHECK(current() == inner);
    }
    CHECK(current() == outer);
    fake().reset_calls();
    {
        ScopedContext const same = must(ScopedContext::enter(outer));
        CHECK(current() == outer);
    }
    CHECK(current() == outer);
    CHECK(fake().calls("cuCtxPushCurrent") == 0);
    fake().destroy_context(inner);
    CHECK(contains(ScopedContext::enter(inner).status().message(), "cuCtxPushCurrent: CUDA_ERROR_INVALID_CONTEXT"));
}

TEST_CASE("is_capturing tells a capture in any state", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    Stream const stream = must(Stream::create());
    CHECK(must(is_capturing(stream.get())) == false);
    CHECK(must(is_capturing(nullptr)) == false);
    REQUIRE(cuda().cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(must(is_capturing(stream.get())) == true);
    CHECK(!DeviceBuffer::allocate(16).ok());  // breaks the capture
    CHECK(must(is_capturing(stream.get())) == true);
    CUgraph graph = nullptr;
    CHECK(cuda().cuStreamEndCapture(stream.get(), &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(must(is_capturing(stream.get())) == false);
    fake().fail("cuStreamIsCapturing", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(must(is_capturing(nullptr)) == true);
    fake().fail("cuStreamIsCapturing", CUDA_ERROR_INVALID_HANDLE);
    CHECK(is_capturing(nullptr).status().code() == XQAJIT_DRIVER_ERROR);
}

}  // namespace xqajit::driver
