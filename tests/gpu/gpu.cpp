#include "gpu/gpu.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "gpu/shape_text.h"

namespace xqajit::testing {
namespace {

constexpr char kForce[] = "XQAJIT_FORCE_KERNEL";

std::string forced_by_environment() {
    char const* const setting = std::getenv(kForce);
    return setting != nullptr ? setting : "";
}

Result<xqajit_service*> create_service(std::string const& forced) {
    std::string const before = forced_by_environment();
    setenv(kForce, forced.c_str(), 1);
    xqajit_service* service = nullptr;
    Status const created = api(xqajit_create(nullptr, &service));
    setenv(kForce, before.c_str(), 1);
    if (!created.ok()) return created;
    return service;
}

}  // namespace

Status api(xqajit_status code) { return code == XQAJIT_OK ? Status() : Status(code, xqajit_last_error()); }

Result<std::unique_ptr<Gpu>> Gpu::open(std::optional<std::string> forced) {
    Result<driver::GpuContext> context = driver::GpuContext::open(0);
    if (!context.ok()) return context.status();
    Result<driver::Stream> stream = driver::Stream::create();
    if (!stream.ok()) return stream.status();
    std::unique_ptr<Gpu> gpu(new Gpu(std::move(*context), std::move(*stream), std::move(forced)));
    XQAJIT_RETURN_IF_ERROR(gpu->restart_service());
    return gpu;
}

Gpu::~Gpu() { xqajit_destroy(service_); }

Status Gpu::restart_service() {
    xqajit_destroy(service_);
    service_ = nullptr;
    Result<xqajit_service*> const service = create_service(forced_.value_or(forced_by_environment()));
    if (!service.ok()) return service.status();
    service_ = *service;
    return {};
}

Result<bool> Gpu::refused_by_force(xqajit_params const& params) const {
    if (forced_.value_or(forced_by_environment()).empty()) return false;
    if (xqajit_supports(service_, &params, nullptr) != XQAJIT_UNSUPPORTED) return false;
    Result<xqajit_service*> const free_choice = create_service("");
    if (!free_choice.ok()) return free_choice.status();
    bool const served = xqajit_supports(*free_choice, &params, nullptr) == XQAJIT_OK;
    xqajit_destroy(*free_choice);
    return served;
}

Status Gpu::prewarm(std::span<xqajit_params const> shapes) const {
    std::set<std::string> served;
    for (xqajit_params const& shape : shapes)
        if (xqajit_supports(service_, &shape, nullptr) == XQAJIT_OK) served.insert(shape_json(shape));
    nlohmann::json list = {{"version", 1}, {"shapes", nlohmann::json::array()}};
    for (std::string const& shape : served) list["shapes"].push_back(nlohmann::json::parse(shape));
    if (list["shapes"].empty()) return {};
    xqajit_prewarm_options const options = XQAJIT_PREWARM_OPTIONS_INIT;
    return api(xqajit_prewarm(service_, list.dump().c_str(), &options, nullptr));
}

Result<GuardedBuffer> GuardedBuffer::allocate(std::uint64_t bytes) {
    std::uint64_t const whole_words = (bytes + 3) / 4 * 4;
    Result<driver::DeviceBuffer> memory = driver::DeviceBuffer::allocate(whole_words + 2 * kZone);
    if (!memory.ok()) return memory.status();
    return GuardedBuffer(std::move(*memory), bytes);
}

Result<GuardedBuffer> GuardedBuffer::create(std::uint64_t bytes) {
    Result<GuardedBuffer> buffer = allocate(bytes);
    if (buffer.ok()) XQAJIT_RETURN_IF_ERROR(buffer->fill(0xFF));
    return buffer;
}

Status GuardedBuffer::fill(std::uint8_t byte) const {
    XQAJIT_RETURN_IF_ERROR(memory_.fill32(byte * 0x01010101U, nullptr));
    return write_zones();
}

Status GuardedBuffer::write_zones() const {
    std::vector<std::uint8_t> const zone(kZone, 0xA5);
    std::vector<std::uint8_t> const after(memory_.bytes() - kZone - bytes_, 0xA5);  // from the very next byte on
    XQAJIT_RETURN_IF_ERROR(memory_.upload(std::as_bytes(std::span(zone)), 0));
    return memory_.upload(std::as_bytes(std::span(after)), kZone + bytes_);
}

Status GuardedBuffer::check_zones(char const* name) const {
    std::vector<std::uint8_t> before(kZone);
    std::vector<std::uint8_t> after(memory_.bytes() - kZone - bytes_);
    XQAJIT_RETURN_IF_ERROR(memory_.download_to(before, 0));
    XQAJIT_RETURN_IF_ERROR(memory_.download_to(after, kZone + bytes_));
    for (std::size_t n = 0; n < before.size(); ++n)
        if (before[n] != 0xA5) return {XQAJIT_INTERNAL, fmt::format("{}: byte {} before the buffer was written", name, kZone - n)};
    for (std::size_t n = 0; n < after.size(); ++n)
        if (after[n] != 0xA5) return {XQAJIT_INTERNAL, fmt::format("{}: byte {} past its {} bytes was written", name, n, bytes_)};
    return {};
}

}  // namespace xqajit::testing
