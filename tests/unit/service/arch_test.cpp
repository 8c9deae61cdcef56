#include <optional>

#include "service/targets.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;

Settings settings_with_arch(std::string const& value) {
    std::vector<std::string> const environment = {"XQAJIT_ARCH=" + value};
    return must(Settings::parse(environment));
}

// Every call that needs this machine's GPU is refused, in the same words; with an arch by name none of it matters.
void require_refused(Service& service, xqajit_status code, std::vector<std::string> const& named) {
    constexpr char kList[] =
        R"({"version": 1, "shapes": [{"q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 8, "head_dim": 64}]})";
    XQAParams const params = plain_params();
    RunArgs const empty = XQAJIT_RUN_ARGS_INIT;
    xqajit_prewarm_options const options = XQAJIT_PREWARM_OPTIONS_INIT;
    for (Status const& status : {service.prepare(params), service.run(params, empty, nullptr),
                                 service.workspace_size(params, 1, 1).status(), service.supports(params, nullptr),
                                 service.explain(params, nullptr, 1, 1).status(), service.capabilities(nullptr).status()}) {
        INFO(status.to_string());
        CHECK(status.code() == code);
        for (std::string const& part : named) CHECK(contains(status.message(), part));
    }
    CHECK_FALSE(service.prewarm(kList, options).ok());
    require_ok(service.supports(params, "sm_90a"));
    require_ok(service.explain(params, "sm_90a", 1, 1).status());
}

}  // namespace

TEST_CASE("the arch is the stream's context's, and one process serves several", "[service][J19]") {
    World world;
    world.cuda().set_devices("12.0,8.6");
    CUcontext const on_1 = world.enter(1);
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(world.compiled_targets() == std::vector<std::string>{"sm_86"});

    CUcontext const on_0 = world.enter(0);
    require_ok(service->prepare(plain_params()));
    CHECK(world.compiled_targets() == std::vector<std::string>{"sm_86", "sm_120f"});

    // A launch follows its stream, whatever context is current, and leaves that one current.
    world.make_current(on_1);
    driver::Stream const stream = must(driver::Stream::create());
    Launch launch(plain_params(), 1, 1);
    world.make_current(on_0);
    require_ok(service->run(launch.params, launch.args, stream.get()));
    CHECK(world.cuda().last_launch().context == on_1);
    CHECK(must(driver::current_context())->context == on_0);
    world.make_current(on_1);
}

TEST_CASE("two contexts on one device share the image and load it once each", "[service][J19]") {
    World world;
    auto const service = world.service();
    world.enter(0);
    require_ok(service->prepare(plain_params()));
    world.enter(0);
    require_ok(service->prepare(plain_params()));
    CHECK(world.compiles() == 1);
    CHECK(world.cuda().live_modules() == 2);
}

TEST_CASE("a context that is destroyed with kernels loaded leaves the next one whole, and nothing behind", "[service]") {
    World world;
    std::uint64_t const before = world.cuda().allocated_bytes();
    {
        auto const service = world.service();
        for (int n = 0; n < 3; ++n) {  // the fake gives each new context the address of the last
            CUcontext const context = world.enter(0);
            {
                Launch launch(plain_params(), 2);
                launch.add_workspace(*service);
                require_ok(service->prepare(launch.params));
                require_ok(service->run(launch.params, launch.args, nullptr));
                CHECK(world.cuda().live_modules() == 1);
            }
            world.cuda().destroy_context(context);
            CHECK(world.cuda().live_modules() == 0);
            CHECK(world.cuda().allocated_bytes() == before);
        }
        CHECK(world.compiles() == 1);
        CHECK(service->stats().launches == 3);
        world.cuda().reset_calls();
    }
    CHECK(world.cuda().calls("cuModuleUnload") == 0);  // they went with their contexts
}

TEST_CASE("XQAJIT_ARCH: the first usable name is obeyed, irrelevant ones are skipped, none usable is an error", "[service][J21]") {
    struct Row {
        char const* value;
        char const* target;  // null: refused
        std::vector<std::string> named;
    };
    Row const rows[] = {
        {"", "sm_90a", {}},
        {",", "sm_90a", {}},
        {"9.0a", "sm_90a", {}},
        {"sm_90", "sm_90a", {}},
        {"compute_80", "compute_80", {}},
        {"7.0;9.0", "sm_90a", {}},
        {"sm_80,sm_90a", "sm_90a", {}},
        {"sm_999a, sm_120, sm_90a", "sm_90a", {}},
        {"8.0", nullptr, {"sm_80", "sm_90"}},
        {"sm_120,sm_80", nullptr, {"sm_120f", "sm_80", "sm_90"}},
        {"sm_999", nullptr, {"sm_999", "sm_90a"}},
        {"7.0", nullptr, {"7.0"}},
    };
    for (Row const& row : rows) {
        World world;
        world.enter(0);
        world.set("XQAJIT_ARCH", row.value);
        auto const service = world.service();
        INFO(row.value);
        // Every kernel obeys it.
        for (std::uint32_t const head_dim : {64u, 128u}) {
            XQAParams params = plain_params();
            params.head_dim = head_dim;
            Status const status = service->prepare(params);
            if (row.target != nullptr) {
                require_ok(status);
                CHECK(world.compiled_targets().back() == row.target);
            } else {
                CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
                CHECK(contains(status.message(), "XQAJIT_ARCH"));
                for (std::string const& name : row.named) CHECK(contains(status.message(), name));
                CHECK(world.compiles() == 0);
            }
        }
    }
}

TEST_CASE("an architecture in XQAJIT_ARCH that nothing is compiled for is warned of once", "[service][J21]") {
    World world;
    world.set("XQAJIT_ARCH", "sm_70,sm_90a");
    world.service();
    CHECK(world.logged("sm_70").size() == 1);
}

TEST_CASE("a word in XQAJIT_ARCH that is no architecture's name is an error with the value and what is accepted",
          "[service][J21][A07]") {
    World world;
    for (std::string const word :
         {"garbage", "sm_9O", "sm_", "90b", "sm_9.0", "9.00", "compute", "SM_90", "-1", "090", "sm_90aa"}) {
        for (std::string const& value : {word, "sm_90a," + word, word + ";sm_80"}) {
            INFO(value);
            world.set("XQAJIT_ARCH", value);
            Status const status = Service::create("").status();
            CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
            for (std::string const& part : {"XQAJIT_ARCH is '" + value + "'", "'" + word + "'", std::string("accepted are")})
                CHECK(contains(status.message(), part));
        }
    }
}

TEST_CASE("the launch is planned for the device, not for the forced arch", "[service][J21]") {
    World world;
    world.cuda().set_devices("9.0:10");
    world.enter(0);
    world.set("XQAJIT_ARCH", "sm_90a");
    Target const target = must(target_for_context(settings_with_arch("sm_90a"), *must(driver::current_context())));
    CHECK(target.arch.sm_count == 10);
    CHECK(target.origin == "XQAJIT_ARCH");
}

TEST_CASE("a compiler that does not know the target refuses it with both versions", "[service][J17]") {
    World world;
    world.enter(0);
    world.set("FAKE_NVRTC_ARCHS", "75,80,86");
    world.set("FAKE_NVRTC_VERSION", "12.4");
    auto const service = world.service();
    Status const status = service->prepare(plain_params());
    CHECK(status.code() == XQAJIT_UNSUPPORTED);
    for (char const* part : {"sm_90", "12.4", "80", "86"}) CHECK(contains(status.message(), part));
    // A compatible lower target is one setting away.
    world.set("XQAJIT_ARCH", "compute_80");
    require_ok(world.service()->prepare(plain_params()));
}

TEST_CASE("a document's arch: the argument, the setting, the current context, the first GPU, in this order", "[service]") {
    World world;
    world.cuda().set_devices("8.9,12.0");
    Settings const unset = settings_with_arch("");
    CHECK(must(target_for_document(unset, "sm_80")).arch.target == "sm_80");
    CHECK(must(target_for_document(settings_with_arch("sm_86"), nullptr)).arch.target == "sm_86");
    CHECK(must(target_for_document(unset, nullptr)).origin == "GPU 0");
    CHECK(must(target_for_document(unset, "")).arch.target == "sm_89");
    world.enter(1);
    CHECK(must(target_for_document(unset, nullptr)).arch.target == "sm_120f");
    CHECK(must(target_for_document(settings_with_arch("sm_80,sm_120"), nullptr)).arch.target == "sm_120f");
    CHECK(target_for_document(unset, "sm_70").status().code() == XQAJIT_INVALID_ARGUMENT);
}

TEST_CASE("a GPU of an unknown arch is refused by every call that needs one, with the known ones", "[service]") {
    for (char const* const capability : {"7.5", "13.0"}) {
        INFO(capability);
        World world;
        world.cuda().set_devices(capability);
        world.enter(0);
        require_refused(*world.service(), XQAJIT_UNSUPPORTED, {capability, "8.0", "12.1"});
        CHECK(world.compiles() == 0);
    }
}

TEST_CASE("a driver too old is refused by every call that needs one, with both versions", "[service]") {
    World world;
    world.cuda().set_version(11080);
    require_refused(*world.service(), XQAJIT_UNAVAILABLE, {"11.8", "12.0"});
    CHECK(world.compiles() == 0);
}

TEST_CASE("without a GPU a document asks for an arch by name", "[service]") {
    World world;
    world.cuda().set_devices("");
    Status const status = target_for_document(settings_with_arch(""), nullptr).status();
    CHECK(status.code() == XQAJIT_UNAVAILABLE);
    CHECK(contains(status.message(), "sm_90a"));
}

TEST_CASE("a prewarm's archs: the list, the setting, the distinct present ones", "[service]") {
    World world;
    world.cuda().set_devices("9.0,9.0,8.0");
    auto const names = [](std::vector<Target> const& targets) {
        std::string text;
        for (Target const& target : targets) text += target.arch.target + " ";
        return text;
    };
    CHECK(names(must(targets_for_prewarm(settings_with_arch(""), nullptr))) == "sm_90a sm_80 ");
    CHECK(names(must(targets_for_prewarm(settings_with_arch(""), "sm_80, 9.0,sm_90a"))) == "sm_80 sm_90a ");
    CHECK(names(must(targets_for_prewarm(settings_with_arch("sm_120,sm_86"), nullptr))) == "sm_120f sm_86 ");
    CHECK(targets_for_prewarm(settings_with_arch(""), "sm_90a,nonsense").status().code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(targets_for_prewarm(settings_with_arch(""), " ,").status().code() == XQAJIT_INVALID_ARGUMENT);
}

}  // namespace xqajit
