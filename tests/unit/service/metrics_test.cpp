// What a service counts, and how it tells.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "exposition.h"
#include "service/metrics.h"
#include "unit/cache/fixture.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using cache::test::start_child;
using cache::test::wait_child;
using nlohmann::json;

json metrics(Service& service, std::int32_t scope = XQAJIT_METRICS_SERVICE) {
    return json::parse(must(service.metrics(scope, XQAJIT_METRICS_JSON)));
}

Exposition exposition(Service& service, std::int32_t scope = XQAJIT_METRICS_SERVICE) {
    Exposition parsed = parse_exposition(must(service.metrics(scope, XQAJIT_METRICS_PROMETHEUS)));
    CHECK(parsed.faults == std::vector<std::string>{});
    return parsed;
}

json hits(std::uint64_t memory, std::uint64_t user) {
    return {{"memory", memory}, {"user", user}, {"system", 0}, {"bundle", 0}, {"remote", 0}};
}

// One of everything, each number another.
MetricsSnapshot sample() {
    std::uint64_t next = 1;
    MetricsSnapshot snapshot;
    for (std::uint64_t& hits : snapshot.hits) hits = next++;
    for (std::uint64_t* value :
         {&snapshot.misses, &snapshot.compiles, &snapshot.compile_failures, &snapshot.read_bytes, &snapshot.stored_bytes,
          &snapshot.quarantined, &snapshot.lock_waits, &snapshot.launches, &snapshot.fallbacks, &snapshot.remote_errors,
          &snapshot.remote_refused, &snapshot.remote_stored, &snapshot.remote_not_stored})
        *value = next++;
    for (DurationCounts& phase : snapshot.phases) {
        for (std::uint64_t& bucket : phase.buckets) bucket = next++;
        phase.nanoseconds = 1'000'000'007 * next++;
    }
    return snapshot;
}

}  // namespace

TEST_CASE("every way to a kernel is counted by its layer, with the time of each step", "[service][metrics]") {
    World world;
    world.enter(0);
    auto const cold = world.service();
    require_ok(cold->prepare(plain_params()));
    require_ok(cold->prepare(plain_params()));
    Launch launch(plain_params(), 2);
    launch.add_workspace(*cold);
    require_ok(cold->run(launch.params, launch.args, nullptr));
    json const first = metrics(*cold);
    CHECK(first["schema"] == "xqajit.metrics/1");
    CHECK(first["scope"] == "service");
    CHECK(first["hits"] == hits(2, 0));
    CHECK(first["misses"] == 1);
    CHECK(first["compiles"] == 1);
    CHECK(first["launches"] == 1);
    CHECK(first["read_bytes"] == 0);
    CHECK(first["stored_bytes"].get<std::uint64_t>() > 0);
    for (auto const& [phase, count] : {std::pair{"read", 0}, {"lock_wait", 0}, {"compile", 1}, {"store", 1}, {"load", 1}}) {
        INFO(phase);
        CHECK(first["seconds"][phase]["count"] == count);
        CHECK(first["seconds"][phase]["buckets"].back()["count"] == count);
        CHECK((first["seconds"][phase]["sum"].get<double>() > 0) == (count != 0));
    }

    auto const warm = world.service();
    require_ok(warm->prepare(plain_params()));
    json const second = metrics(*warm);
    CHECK(second["hits"] == hits(0, 1));
    CHECK(second["misses"] == 0);
    CHECK(second["read_bytes"] == first["stored_bytes"]);
    CHECK(second["seconds"]["read"]["count"] == 1);

    std::string const entry = world.cache_files().front();
    std::filesystem::resize_file(entry, 100);
    World::set("FAKE_NVRTC_FAIL", "kernel.cu(1): error: no luck today");
    auto const unlucky = world.service();
    CHECK(unlucky->prepare(plain_params()).code() == XQAJIT_COMPILE_FAILED);
    json const third = metrics(*unlucky);
    CHECK(third["quarantined"] == 1);
    CHECK(third["misses"] == 1);
    CHECK(third["compiles"] == 0);
    CHECK(third["compile_failures"] == 1);
    xqajit_stats const stats = unlucky->stats();
    CHECK(stats.misses == 1);
    CHECK(stats.quarantined == 1);
}

TEST_CASE("the text for Prometheus is valid, and says what the JSON says", "[service][metrics]") {
    MetricsSnapshot const snapshot = sample();
    Exposition const parsed = parse_exposition(to_prometheus(snapshot));
    CHECK(parsed.faults == std::vector<std::string>{});
    nlohmann::ordered_json const json = to_json(snapshot);
    std::size_t values = 0;
    auto const same = [&](std::string const& name, nlohmann::ordered_json const& value) {
        INFO(name);
        REQUIRE(parsed.samples.contains(name));
        CHECK(parsed.samples.at(name) == value.get<double>());
        ++values;
    };
    for (auto const& [member, value] : json.items()) {
        if (member == "hits") {
            for (auto const& [layer, hits] : value.items()) same("xqajit_hits_total{layer=\"" + layer + "\"}", hits);
        } else if (member == "seconds") {
            for (auto const& [phase, seconds] : value.items()) {
                std::string const label = "{phase=\"" + phase + "\"";
                same("xqajit_phase_seconds_sum" + label + "}", seconds["sum"]);
                same("xqajit_phase_seconds_count" + label + "}", seconds["count"]);
                for (std::size_t i = 0; i < kBuckets; ++i) {
                    std::string const edge = i + 1 < kBuckets ? kBucketEdges[i].seconds : "+Inf";
                    same("xqajit_phase_seconds_bucket" + label + ",le=\"" + edge + "\"}", seconds["buckets"][i]["count"]);
                    if (i + 1 < kBuckets) CHECK(seconds["buckets"][i]["le"] == std::stod(edge));
                }
            }
        } else {
            same("xqajit_" + member + (member == "quarantined" ? "_entries_total" : "_total"), value);
        }
    }
    CHECK(values == parsed.samples.size());
    CHECK(parsed.types.at("xqajit_phase_seconds") == "histogram");
    World world;
    exposition(*world.service());
}

TEST_CASE("what is wrong with a text for Prometheus is found", "[metrics]") {
    std::string const good = to_prometheus(sample());
    struct Row {
        char const* from;
        char const* to;
    };
    for (Row const& row :
         {Row{"# TYPE xqajit_misses_total counter\n", ""}, Row{"# HELP xqajit_misses_total", "# HELP"},
          Row{"misses_total", "misses"}, Row{"phase_seconds_sum{phase=\"load\"}", "phase_seconds_sun"},
          Row{"le=\"+Inf\"", "le=\"600\""}, Row{"le=\"0.001\"", "le=\"0.0001\""}, Row{"layer=\"user\"", "layer=\"memory\""},
          Row{"layer=\"user\"", "layer=user"}, Row{"_count{phase=\"read\"} ", "_count{phase=\"read\"} 9"},
          Row{"\nxqajit_launches_total ", "\nxqajit_launches_total -"}, Row{" histogram", " counter"},
          Row{"\nxqajit_launches_total ", "\nxqajit_launches_total x"}}) {
        INFO(row.from << " -> " << row.to);
        std::string text = good;
        REQUIRE(contains(text, row.from));
        text.replace(text.find(row.from), std::string(row.from).size(), row.to);
        CHECK_FALSE(parse_exposition(text).faults.empty());
    }
    CHECK_FALSE(parse_exposition(good.substr(0, good.size() - 1)).faults.empty());
}

TEST_CASE("counters survive as JSON, and what is no such JSON is refused by name", "[metrics]") {
    using Json = nlohmann::ordered_json;
    MetricsSnapshot const snapshot = sample();
    Json const json = to_json(snapshot);
    CHECK(to_json(must(metrics_from_json(json))) == json);
    MetricsSnapshot twice = snapshot;
    twice.add(snapshot);
    CHECK(twice.hits[0] == 2 * snapshot.hits[0]);
    CHECK(twice.phases[1].nanoseconds == 2 * snapshot.phases[1].nanoseconds);
    CHECK(to_json(twice)["launches"] == 2 * snapshot.launches);
    CHECK(must(metrics_from_json(Json::object())).is_zero());  // of a version that counted nothing of this
    CHECK_FALSE(twice.is_zero());
    struct Row {
        char const* pointer;
        Json value;
        char const* named;
    };
    for (Row const& row : std::vector<Row>{{"/misses", -1, "misses"},
                                           {"/misses", "many", "misses"},
                                           {"/hits", 3, "hits"},
                                           {"/hits/memory", 1.5, "memory"},
                                           {"/seconds", Json::array(), "seconds"},
                                           {"/seconds/load", 1, "seconds.load"},
                                           {"/seconds/load/sum", "long", "seconds.load"},
                                           {"/seconds/load/sum", 1e300, "seconds.load"},
                                           {"/seconds/load/buckets", Json::array(), "seconds.load"},
                                           {"/seconds/load/buckets/3/count", 0, "seconds.load"},
                                           {"/seconds/load/buckets/3", nullptr, "seconds.load"},
                                           {"", Json::array(), "object"}}) {
        INFO(row.pointer << " " << row.value);
        Json changed = json;
        changed[Json::json_pointer(row.pointer)] = row.value;
        Status const status = metrics_from_json(changed).status();
        CHECK(status.code() == XQAJIT_CACHE_CORRUPT);
        CHECK(contains(status.message(), row.named));
    }
}

TEST_CASE("a duration counts in the first bucket whose edge it does not pass", "[metrics]") {
    DurationHistogram histogram;
    for (BucketEdge const& edge : kBucketEdges)
        for (std::uint64_t const more : {0, 1}) histogram.add(std::chrono::nanoseconds(edge.nanoseconds + more));
    DurationCounts const counts = histogram.counts();
    for (std::size_t i = 0; i < kBuckets; ++i) CHECK(counts.buckets[i] == (i == 0 || i + 1 == kBuckets ? 1 : 2));
    for (BucketEdge const& edge : kBucketEdges)
        CHECK(edge.nanoseconds == static_cast<std::uint64_t>(std::llround(std::stod(edge.seconds) * 1e9)));
    histogram.add(std::chrono::nanoseconds(-5));  // a clock that was set back
    CHECK(histogram.counts().buckets[0] == 2);
    CHECK(histogram.counts().nanoseconds == counts.nanoseconds);
}

TEST_CASE("no count of any thread is lost", "[metrics]") {
    constexpr std::uint64_t kThreads = 8, kEach = 20000;
    Metrics metrics;
    {
        std::vector<std::jthread> threads;
        for (std::uint64_t thread = 0; thread < kThreads; ++thread)
            threads.emplace_back([&] {
                for (std::uint64_t i = 0; i < kEach; ++i) {
                    metrics.count_hit(Layer::kMemory);
                    metrics.count_launch();
                    metrics.time(Phase::kLoad, std::chrono::nanoseconds(3));
                    ++metrics.misses;
                }
            });
    }
    MetricsSnapshot const snapshot = metrics.snapshot();
    CHECK(snapshot.hits[static_cast<std::size_t>(Layer::kMemory)] == kThreads * kEach);
    CHECK(snapshot.launches == kThreads * kEach);
    CHECK(snapshot.misses == kThreads * kEach);
    DurationCounts const& loads = snapshot.phases[static_cast<std::size_t>(Phase::kLoad)];
    CHECK(loads.count() == kThreads * kEach);
    CHECK(loads.nanoseconds == 3 * kThreads * kEach);
}

TEST_CASE("a cache directory sums what the processes counted that used it", "[service][metrics]") {
    World world;
    world.enter(0);
    CHECK(metrics(*world.service(), XQAJIT_METRICS_CACHE)["misses"] == 0);
    CHECK_FALSE(std::filesystem::exists(world.cache_dir()));  // looking makes nothing
    require_ok(world.service()->prepare(plain_params()));
    constexpr int kProcesses = 12;
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i)
        children.push_back(start_child([&] {
            world.enter(0);
            auto const service = world.service();
            return service->prepare(plain_params()).ok() && service->prepare(plain_params()).ok() ? 0 : 1;
        }));
    for (pid_t const child : children) CHECK(wait_child(child) == 0);
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));  // its own counts too, though it lives
    json const all = metrics(*service, XQAJIT_METRICS_CACHE);
    CHECK(all["scope"] == "cache");
    CHECK(all["hits"] == hits(kProcesses, kProcesses + 1));
    CHECK(all["misses"] == 1);
    CHECK(all["compiles"] == 1);
    CHECK(all["seconds"]["read"]["count"] == kProcesses + 1);
    CHECK(metrics(*service)["hits"]["user"] == 1);
    Exposition const text = exposition(*service, XQAJIT_METRICS_CACHE);
    CHECK(text.samples.at("xqajit_hits_total{layer=\"user\"}") == kProcesses + 1);
    CHECK(world.logged("totals").empty());
    std::string const before = world.read(world.cache_dir() + "/totals.json");
    metrics(*world.service(), XQAJIT_METRICS_CACHE);
    CHECK(world.read(world.cache_dir() + "/totals.json") == before);  // who counted nothing writes nothing
}

TEST_CASE("totals that are damaged or something else are told of, begun anew, and cost no kernel", "[service][metrics]") {
    World world;
    world.enter(0);
    require_ok(world.service()->prepare(plain_params()));
    std::string const path = world.cache_dir() + "/totals.json";
    std::string const good = world.read(path);
    world.write("elsewhere.json", good);
    for (std::string const& text : {std::string("{"), std::string("[]"), good.substr(0, good.size() / 2), std::string("link"),
                                    std::string(2 << 20, ' '), std::string(R"({"schema": "xqajit.totals/2", "metrics": {}})")}) {
        INFO(text.substr(0, 60));
        std::filesystem::remove(path);
        if (text == "link")
            std::filesystem::create_symlink(world.folder() + "/elsewhere.json", path);
        else
            world.write("cache/totals.json", text);
        {
            auto const service = world.service();
            Status const refused = service->metrics(XQAJIT_METRICS_CACHE, XQAJIT_METRICS_JSON).status();
            CHECK(refused.code() == XQAJIT_CACHE_CORRUPT);
            CHECK(contains(refused.message(), "totals.json"));
            CHECK(metrics(*service)["misses"] == 0);
            require_ok(service->prepare(plain_params()));
        }
        CHECK(std::filesystem::is_regular_file(std::filesystem::symlink_status(path)));
        CHECK(metrics(*world.service(), XQAJIT_METRICS_CACHE)["hits"]["user"] == 1);
        CHECK(world.read(world.folder() + "/elsewhere.json") == good);
    }
    CHECK(world.compiles() == 1);
    CHECK(world.logged("begin anew").size() == 6);
}

TEST_CASE("a scope or a format that there is not is refused by name", "[service][metrics]") {
    World world;
    auto const service = world.service();
    for (std::int32_t const value : {-1, 2}) {
        std::string const range = " is " + std::to_string(value) + ": accepted are 0..1";
        CHECK(contains(service->metrics(value, XQAJIT_METRICS_JSON).status().message(), "scope" + range));
        CHECK(contains(service->metrics(XQAJIT_METRICS_CACHE, value).status().message(), "format" + range));
    }
}

}  // namespace xqajit
