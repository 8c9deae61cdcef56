#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "params/shape_list.h"
#include "plan/plan.h"
#include "select/select.h"

using namespace xqajit;
using Json = nlohmann::ordered_json;

namespace {

constexpr char const* kArchs[] = {"sm_80", "sm_90a", "sm_120f"};

struct Launch {
    std::uint32_t batch;
    std::uint64_t max_len;
    std::int32_t division;
};

constexpr Launch kLaunches[] = {
    {1, 1000, XQAJIT_DIVISION_BALANCED},  {1, 131072, XQAJIT_DIVISION_BALANCED}, {7, 8192, XQAJIT_DIVISION_BALANCED},
    {64, 8192, XQAJIT_DIVISION_BALANCED}, {65536, 64, XQAJIT_DIVISION_BALANCED}, {1, 131072, XQAJIT_DIVISION_STATIC},
    {7, 8192, XQAJIT_DIVISION_STATIC},    {64, 8192, XQAJIT_DIVISION_STATIC},    {7, 8192, XQAJIT_DIVISION_INVARIANT}};

template <class T> std::string text_or_error(Result<T> const& result, std::string (*text)(T const&)) {
    return result.ok() ? text(*result) : result.status().to_string();
}

Json plans_of(KernelSpec const& spec, XQAParams const& params, ArchFacts const& arch) {
    Json plans = Json::object();
    for (Launch const& launch : kLaunches) {
        LaunchBounds bounds;
        bounds.batch = launch.batch;
        bounds.max_len = launch.max_len;
        bounds.q_len = params.q_len;
        bounds.num_kv_heads = params.num_kv_heads;
        bounds.division = launch.division;
        bounds.nb_sub_seq = launch.division == XQAJIT_DIVISION_STATIC ? params.nb_sub_seq : 0;
        bounds.sm_count = arch.sm_count;
        bounds.smem_optin = arch.smem_optin;
        bounds.has_clusters = arch.has_clusters;
        std::string const name = "batch " + std::to_string(launch.batch) + ", max_len " + std::to_string(launch.max_len) + ", " +
                                 division_name(launch.division);
        plans[name] = {
            {"plan", text_or_error<LaunchPlan>(make_plan(spec, bounds), [](LaunchPlan const& plan) { return plan.to_string(); })},
            {"workspace_size", text_or_error<std::uint64_t>(workspace_size(spec, bounds),
                                                            [](std::uint64_t const& bytes) { return std::to_string(bytes); })}};
    }
    return plans;
}

Json decisions_of(XQAParams const& params, ArchFacts const& arch) {
    Result<Selection> const selection = select(params, arch, {});
    if (!selection.ok()) return {{"error", selection.status().to_string()}};
    Json admissions = Json::object();
    for (Admission const& admission : selection->admissions)
        admissions[family_name(admission.family)] = admission.ok ? "admitted" : admission.rule + ": " + admission.text;
    return {{"admissions", admissions},
            {"reason", selection->reason},
            {"spec", to_string(selection->spec)},
            {"plans", plans_of(selection->spec, params, arch)}};
}

std::string read_text(std::filesystem::path const& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::filesystem::path> golden_files() {
    std::vector<std::filesystem::path> files;
    for (auto const& entry : std::filesystem::directory_iterator(XQAJIT_GOLDEN_DIR))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace

TEST_CASE("selection and planning decide as the golden files say", "[golden]") {
    bool const update = std::getenv("GOLDEN_UPDATE") != nullptr;
    std::vector<std::filesystem::path> const files = golden_files();
    REQUIRE(files.size() >= 25);
    for (std::filesystem::path const& path : files) {
        INFO(path.string());
        std::string const kept = read_text(path);
        Json const document = Json::parse(kept);
        Result<ShapeEntry> const entry = parse_shape(document.at("shape").dump());
        INFO(entry.status().message());
        REQUIRE(entry.ok());
        Json now = {{"shape", document.at("shape")}, {"shape_text", to_string(entry->params)}};
        for (char const* const name : kArchs) {
            Result<ArchFacts> const arch = arch_from_name(name);
            REQUIRE(arch.ok());
            now[name] = decisions_of(entry->params, *arch);
        }
        std::string const text = now.dump(1) + "\n";
        if (update)
            std::ofstream(path) << text;
        else
            CHECK(text == kept);
    }
}
