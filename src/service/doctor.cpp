// What this machine offers: compiler, worker, driver, GPUs, cache directory and every setting, each with the reason where it is missing.
#include <sys/stat.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "service/devices.h"
#include "service/documents.h"
#include "service/impl.h"

namespace xqajit {
namespace {

using Json = nlohmann::ordered_json;

Json missing(Status const& why) { return {{"found", false}, {"reason", why.message()}}; }

// Opens the library: only this command and a compile do.
Json nvrtc_json(Toolchain& toolchain) {
    Result<NvrtcIdentity> const identity = toolchain.identity();
    if (!identity.ok()) return missing(identity.status());
    Json json = {{"found", true}, {"path", identity->path}, {"origin", identity->origin}, {"id", identity->build.hex()}};
    Result<std::shared_ptr<NvrtcLibrary const>> const library = toolchain.library();
    if (library.ok()) {
        json["version"] = (*library)->version();
        json["archs"] = (*library)->supported_archs();
    } else {
        json["found"] = false;
        json["reason"] = library.status().message();
    }
    return json;
}

Json worker_json(Settings const& settings) {
    Result<std::string> const worker = find_worker(settings);
    if (!worker.ok()) return missing(worker.status());
    return {{"found", true}, {"path", *worker}};
}

Json driver_json() {
    Result<DriverReport> const report = read_devices();
    if (!report.ok()) return missing(report.status());
    Json devices = Json::array();
    for (Device const& device : report->devices) {
        Json json = {{"ordinal", device.ordinal},
                     {"name", device.name},
                     {"capability", fmt::format("{}.{}", device.major, device.minor)},
                     {"memory_bytes", device.memory_bytes}};
        if (device.arch.ok()) {
            json["target"] = device.arch->target;
            json["sm_count"] = device.arch->sm_count;
            json["smem_optin"] = device.arch->smem_optin;
        } else {
            json["target"] = nullptr;
            json["reason"] = device.arch.status().message();
        }
        devices.push_back(std::move(json));
    }
    return {{"found", true}, {"version", report->version}, {"gpus", std::move(devices)}};
}

Json cache_json(cache::DiskStore const& store) {
    Json json = store_json(store);
    std::string const path = store.state().effective_path;
    struct stat facts {};
    if (!path.empty() && ::stat(path.c_str(), &facts) == 0) {
        json["mode"] = fmt::format("{:04o}", facts.st_mode & 07777u);
        json["owner_uid"] = facts.st_uid;
    }
    return json;
}

Json settings_json(Settings const& settings) {
    Json list = Json::array();
    for (Setting const& setting : settings_table()) {
        SettingValue const& value = settings.get(setting.id);
        list.push_back({{"name", setting.name},
                        {"value", settings.shown(setting.id)},
                        {"origin", value.origin},
                        {"type", setting.type},
                        {"accepted", setting.accepted},
                        {"help", setting.help}});
    }
    return list;
}

}  // namespace

Result<std::string> Service::doctor() {
    Json warnings = impl_->settings.warnings();
    for (std::string const& warning : arch_setting_warnings(impl_->settings)) warnings.push_back(warning);
    if (std::string const& warning = impl_->store->origin().warning; !warning.empty()) warnings.push_back(warning);
    Json const json = {{"schema", "xqajit.doctor/1"},
                       {"version", fmt::format("{}.{}.{}", XQAJIT_VERSION_MAJOR, XQAJIT_VERSION_MINOR, XQAJIT_VERSION_PATCH)},
                       {"nvrtc", nvrtc_json(impl_->toolchain)},
                       {"worker", worker_json(impl_->settings)},
                       {"driver", driver_json()},
                       {"cache", cache_json(*impl_->store)},
                       {"layers", layers_json(*impl_->layers)},
                       {"remote", remote_json(*impl_->remote, impl_->settings)},
                       {"settings", settings_json(impl_->settings)},
                       {"warnings", std::move(warnings)}};
    return to_text(json, 1);
}

}  // namespace xqajit
