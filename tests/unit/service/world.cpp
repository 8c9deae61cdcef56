#include "world.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>

#include "base/log.h"
#include "driver/cuda_functions.h"

namespace xqajit::testing {
namespace {

std::mutex log_mutex;
std::vector<std::string> log_lines;

void remember_line(void*, int, char const* text) {
    std::lock_guard const lock(log_mutex);
    log_lines.emplace_back(text);
}

std::string make_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "xqajit-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    return name;
}

}  // namespace

void require_ok(Status const& status) {
    INFO(status.to_string() << "\n" << status.detail());
    REQUIRE(status.ok());
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

World::World() : folder_(make_folder()), cuda_(fake_cuda()) {
    REQUIRE(cuda_ != nullptr);  // LD_LIBRARY_PATH names the fake driver's folder
    for (Setting const& setting : settings_table()) set(setting.name, "");
    for (char const* name :
         {"VERSION", "ARCHS", "ONLY", "ONCE", "FAIL", "CRASH", "HANG", "DELAY_MS", "WHILE", "MEMORY"})  // an earlier section's
        set((std::string("FAKE_NVRTC_") + name).c_str(), "");
    set("XQAJIT_CACHE_DIR", cache_dir());
    set("XQAJIT_NVRTC_PATH", FAKE_NVRTC);
    set("XQAJIT_WORKER", WORKER);
    set("XQAJIT_LOG_LEVEL", "info");
    set("FAKE_NVRTC_COUNT", folder_ + "/compiles");
    log_lines.clear();
    log::set_sink(remember_line, nullptr);
}

World::~World() {
    log::set_sink(nullptr, nullptr);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void World::set(char const* name, std::string const& value) {
    if (value.empty())
        ::unsetenv(name);
    else
        ::setenv(name, value.c_str(), 1);
}

CUcontext World::enter(int device) const {
    CUcontext const context = cuda_->create_context(device);
    make_current(context);
    return context;
}

void World::make_current(CUcontext context) { REQUIRE(must(driver::open_cuda())->cuCtxSetCurrent(context) == CUDA_SUCCESS); }

std::vector<std::string> World::compiled_targets() const {
    std::vector<std::string> targets;
    std::ifstream file(folder_ + "/compiles");
    std::string target, process;
    while (file >> target >> process) targets.push_back(target);
    return targets;
}

bool World::nvrtc_is_loaded() {
    std::ifstream file("/proc/self/maps");
    std::string line;
    while (std::getline(file, line))
        if (contains(line, "libnvrtc")) return true;
    return false;
}

std::vector<std::string> World::cache_files() const {
    std::vector<std::string> files;
    if (!std::filesystem::exists(cache_dir())) return files;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(cache_dir())) {
        if (entry.path().extension() == ".xqa" && !contains(entry.path().string(), "quarantine"))
            files.push_back(entry.path().string());
    }
    return files;
}

std::vector<std::string> World::logged(std::string const& part) const {
    std::lock_guard const lock(log_mutex);
    std::vector<std::string> lines;
    for (std::string const& line : log_lines)
        if (contains(line, part)) lines.push_back(line);
    return lines;
}

void World::install_compiler(unsigned char mark) const {
    std::string library = read(FAKE_NVRTC);
    std::size_t const note = library.find(std::string("GNU\0", 4));
    REQUIRE(note != std::string::npos);
    library[note + 4] = static_cast<char>(library[note + 4] ^ mark);
    write("fresh", library);
    std::filesystem::rename(folder_ + "/fresh", folder_ + "/libnvrtc.so.13");
    set("XQAJIT_NVRTC_PATH", folder_ + "/libnvrtc.so.13");
}

void World::write(std::string const& name, std::string const& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
}

std::string World::read(std::string const& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

XQAParams plain_params() {
    XQAParams params = XQAJIT_PARAMS_INIT;
    params.q_dtype = XQAJIT_DTYPE_BF16;
    params.num_q_heads = 32;
    params.num_kv_heads = 8;
    params.head_dim = 128;
    params.page_size = 64;
    return params;
}

XQAParams mla_params() {
    XQAParams params = plain_params();
    params.mla = 1;
    params.num_q_heads = 128;
    params.num_kv_heads = 1;
    params.head_dim = 576;
    params.qk_scale = 0.1f;
    return params;
}

Launch::Launch(XQAParams const& shape, std::uint32_t batch, std::uint32_t max_pages)
    : memory(must(driver::DeviceBuffer::allocate(1 << 20))),
      lengths(must(driver::DeviceBuffer::from(std::vector<std::int32_t>(batch, 1)))),
      params(shape),
      args(XQAJIT_RUN_ARGS_INIT),
      workspace(must(driver::DeviceBuffer::allocate(0))) {
    args.batch = batch;
    args.q_len = params.q_len;
    (params.input_kv != 0 ? args.qkv : args.q) = memory.as();
    args.out = memory.as();
    args.k = memory.as();
    if (params.mla == 0) args.v = memory.as(4096);
    if (params.page_size != 0) {
        args.max_pages = max_pages;
        args.page_table = memory.as<std::int32_t>(8192);
    } else {
        args.capacity = std::uint64_t{max_pages} * 64;
    }
    args.seq_lens = lengths.as<std::int32_t>();
    if (params.lse != 0) args.lse = memory.as<float>();
    if (params.sinks != 0) args.sinks = memory.as<float>();
    if (params.spec_dec == XQAJIT_SPEC_DEC_TREE) args.packed_mask = memory.as<std::uint32_t>();
    if (params.rope_style != XQAJIT_ROPE_NONE) {
        args.cos_sin = memory.as<float>();
        args.max_pos = std::max(args.capacity, std::uint64_t{args.max_pages} * params.page_size);
    }
    if (params.beam_width > 1) {
        args.capacity = std::uint64_t{max_pages} * 64;
        args.cache_indirection = memory.as<std::int32_t>();
        args.ctx_lens = memory.as<std::int32_t>();
    }
}

void Launch::add_workspace(Service& service, std::uint64_t bytes) {
    std::uint64_t const tokens = params.page_size != 0 ? std::uint64_t{args.max_pages} * params.page_size : args.capacity;
    if (bytes == 0) bytes = must(service.workspace_size(params, args.batch, tokens));
    if (bytes == 0) return;
    workspace = must(driver::DeviceBuffer::allocate(bytes));
    args.workspace = workspace.as();
    args.workspace_size = bytes;
    require_ok(service.workspace_init(args.workspace, bytes, nullptr));
}

Running::Running(std::vector<std::size_t> args_sizes) {
    world.enter(0);
    world.cuda().set_args_sizes(std::move(args_sizes));
}

device::KernelArgs last_args(World const& world) {
    FakeCudaLaunch const launch = world.cuda().last_launch();
    REQUIRE(launch.args.size() >= 1);
    REQUIRE(launch.args[0].size() == sizeof(device::KernelArgs));
    device::KernelArgs args;
    std::memcpy(&args, launch.args[0].data(), sizeof args);
    return args;
}

}  // namespace xqajit::testing
