#include "kernel_src/common/work_division.h"
#include "service/workspaces.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;

struct Shape {
    char const* name;
    XQAParams params;
    std::uint32_t batch;
};

XQAParams split(XQAParams params, std::uint32_t sub_seqs) {
    params.nb_sub_seq = sub_seqs;
    return params;
}

// Launches that need a workspace, of every kind that sizes one.
std::vector<Shape> split_shapes() {
    std::vector<Shape> shapes = {{"plain", split(plain_params(), 4), 5}, {"many parts", split(plain_params(), 61), 3}};
    for (std::uint32_t const beam : {2u, 4u}) {
        for (std::uint32_t const batch : {8u, 16u, 32u}) {
            XQAParams params = split(plain_params(), 2);
            params.num_q_heads = params.num_kv_heads = 6;
            params.beam_width = beam;
            shapes.push_back({"beam", params, batch});
        }
    }
    XQAParams draft = split(plain_params(), 3);
    draft.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
    draft.q_len = 5;
    shapes.push_back({"draft", draft, 7});
    shapes.push_back({"mla", split(mla_params(), 4), 2});
    XQAParams invariant = plain_params();
    invariant.division = XQAJIT_DIVISION_INVARIANT;
    shapes.push_back({"invariant", invariant, 2});
    // Balanced, at the batches that need most: the fewest that fill a wave (one request of eight KV heads has clusters of hmma's, which
    // need nothing), or, of gmma, that give every SM a block; and past two waves all batches need as much.
    XQAParams mha = plain_params();
    mha.num_q_heads = mha.num_kv_heads;
    XQAParams wide = plain_params();
    wide.num_q_heads = 32 * wide.num_kv_heads;
    for (std::uint32_t const batch : {17u, 300u}) shapes.push_back({"balanced", plain_params(), batch});
    for (std::uint32_t const batch : {2u, 300u}) shapes.push_back({"balanced, more rows", wide, batch});
    for (std::uint32_t const batch : {1u, 300u}) shapes.push_back({"balanced mha", mha, batch});
    return shapes;
}

}  // namespace

TEST_CASE("a workspace of exactly the size asked for serves, and one byte less is refused with both numbers", "[service][C14]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    for (Shape const& shape : split_shapes()) {
        INFO(shape.name << " batch " << shape.batch << " beam " << shape.params.beam_width);
        std::uint64_t const bytes = must(service->workspace_size(shape.params, shape.batch, 64 * 64));
        REQUIRE(bytes > 0);
        Launch exact(shape.params, shape.batch);
        exact.add_workspace(*service, bytes);
        require_ok(service->run(shape.params, exact.args, nullptr));
        Launch small(shape.params, shape.batch);
        small.add_workspace(*service, bytes - 1);
        Status const refused = service->run(shape.params, small.args, nullptr);
        CHECK(refused.code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(contains(refused.message(), std::to_string(bytes - 1)));
        CHECK(contains(refused.message(), std::to_string(bytes)));
    }
}

TEST_CASE("counters and partials never meet, whatever shapes share a workspace", "[service][C15]") {
    World world;
    world.enter(0);
    world.cuda().set_args_sizes({sizeof(device::KernelArgs)});
    auto const service = world.service();
    std::uint64_t most = 0;
    std::vector<Shape> const shapes = split_shapes();
    for (Shape const& shape : shapes) most = std::max(most, must(service->workspace_size(shape.params, shape.batch, 64 * 64)));
    driver::DeviceBuffer const workspace = must(driver::DeviceBuffer::allocate(most));
    require_ok(workspace.fill32(0xffffffffu, nullptr));
    require_ok(service->workspace_init(workspace.as(), most, nullptr));

    auto const* const begin = workspace.as<unsigned char>();
    std::uint64_t const counters = counter_bytes(most);
    std::vector<std::uint32_t> words(most / 4);
    require_ok(workspace.download_to(words));
    for (std::uint64_t i = 0; i < counters / 4; ++i) REQUIRE(words[i] == 0);
    for (Shape const& shape : shapes) {
        INFO(shape.name << " batch " << shape.batch);
        Launch launch(shape.params, shape.batch);
        launch.args.workspace = workspace.as();
        launch.args.workspace_size = most;
        require_ok(service->run(shape.params, launch.args, nullptr));
        device::KernelArgs const args = last_args(world);
        CHECK(reinterpret_cast<unsigned char const*>(args.counters) == begin);
        CHECK(reinterpret_cast<unsigned char const*>(args.partials) == begin + counters);
        REQUIRE(args.nb_slots > 0);
        std::uint64_t const nb_counters = std::uint64_t{args.nb_slots} * device::merge_levels(args.nb_sub_seq);
        CHECK(nb_counters * sizeof(std::uint32_t) <= counters);
        std::uint64_t const blocks_of_part = std::max(1u, shape.params.beam_width) * args.num_kv_heads * args.nb_row_blocks;
        if (args.division == device::Division::kBalanced)
            CHECK(args.nb_slots == device::balanced_slots(args.nb_extra_parts) * blocks_of_part);
        else
            CHECK(args.nb_slots == shape.batch * args.nb_sub_seq * blocks_of_part);
    }
}

TEST_CASE("a workspace that was not initialised is refused", "[service][A05]") {
    World world;
    CUcontext const first = world.enter(0);
    auto const service = world.service();
    XQAParams const params = split(plain_params(), 4);
    Launch launch(params, 2);
    auto const refusal = [&] { return service->run(params, launch.args, nullptr).message(); };
    CHECK(contains(refusal(), "workspace is null: this launch needs one of"));

    std::uint64_t const bytes = must(service->workspace_size(params, 2, 64 * 64));
    driver::DeviceBuffer const memory = must(driver::DeviceBuffer::allocate(bytes + 512));
    launch.args.workspace = memory.as();
    launch.args.workspace_size = bytes;
    CHECK(contains(refusal(), "not initialised"));
    CHECK(world.cuda().launches() == 0);

    require_ok(service->workspace_init(memory.as(), bytes, nullptr));
    require_ok(service->run(params, launch.args, nullptr));

    launch.args.workspace_size = bytes + 256;  // not what was initialised
    CHECK(contains(refusal(), "workspace_size is " + std::to_string(bytes + 256)));
    launch.args.workspace_size = bytes;
    launch.args.workspace = memory.as(256);
    CHECK(contains(refusal(), "not initialised"));
    launch.args.workspace = memory.as();

    world.enter(0);  // another context
    CHECK(contains(refusal(), "not initialised"));
    world.make_current(first);
    require_ok(service->run(params, launch.args, nullptr));

    require_ok(service->workspace_release(memory.as()));
    CHECK(contains(refusal(), "not initialised"));
    CHECK(service->workspace_release(memory.as()).code() == XQAJIT_INVALID_ARGUMENT);
    require_ok(service->workspace_init(memory.as(), bytes, nullptr));  // again
    require_ok(service->run(params, launch.args, nullptr));
}

TEST_CASE("a launch that divides nothing needs no workspace", "[service]") {
    World world;
    world.enter(0);
    world.cuda().set_args_sizes({sizeof(device::KernelArgs)});
    auto const service = world.service();
    XQAParams const params = split(plain_params(), 1);
    CHECK(must(service->workspace_size(params, 64, 1 << 20)) == 0);
    Launch launch(params, 2);
    require_ok(service->run(params, launch.args, nullptr));
    CHECK(last_args(world).partials == nullptr);
    CHECK(last_args(world).counters == nullptr);
}

TEST_CASE("bad workspaces are refused by name", "[service]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    driver::DeviceBuffer const memory = must(driver::DeviceBuffer::allocate(1024));
    CHECK(contains(service->workspace_init(nullptr, 1024, nullptr).message(), "workspace is null"));
    CHECK(contains(service->workspace_init(memory.as(16), 512, nullptr).message(), "aligned to 256"));
    CHECK(contains(service->workspace_init(memory.as(), 0, nullptr).message(), "bytes is 0"));
    CHECK(service->workspace_release(memory.as()).code() == XQAJIT_INVALID_ARGUMENT);
    require_ok(service->workspace_init(memory.as(), 256, nullptr));
}

TEST_CASE("a workspace record is the last one's", "[service]") {
    Workspaces workspaces;
    void* const address = reinterpret_cast<void*>(std::uintptr_t{0x1000});
    require_ok(workspaces.remember(1, address, 4096));
    require_ok(workspaces.check(1, address, 4096, 4096));
    require_ok(workspaces.remember(2, address, 8192));
    CHECK_FALSE(workspaces.check(1, address, 4096, 1).ok());
    require_ok(workspaces.check(2, address, 8192, 1));
}

}  // namespace xqajit
