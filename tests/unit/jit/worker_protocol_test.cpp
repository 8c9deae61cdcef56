#include "jit/worker_protocol.h"

#include "support.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

std::string const kOddText("binary \0 \n end 0\n", 17);

CompiledImage sample_image() {
    CompiledImage image;
    image.image = kOddText;
    image.is_ptx = true;
    image.log = "log\nof two lines";
    image.compile_ms = 12.5;
    image.nvrtc_version = "12.4";
    image.registers = 1;
    image.spill_bytes = 2;
    image.stack_bytes = 3;
    image.static_smem = 4;
    return image;
}

}  // namespace

TEST_CASE("a request survives the pipe", "[jit]") {
    CompileJob job = sample_job();
    job.sources[1].text = kOddText;
    std::string const text = encode_request({{"/a/libnvrtc.so.13", digest_of("a build"), ""}, job});
    auto const read = decode_request(text);
    REQUIRE(read.has_value());
    CHECK(read->nvrtc.path == "/a/libnvrtc.so.13");
    CHECK(read->nvrtc.build == digest_of("a build"));
    CHECK(read->job.name == job.name);
    CHECK(read->job.target == job.target);
    CHECK(read->job.options == job.options);
    CHECK(read->job.macros.macros == job.macros.macros);
    REQUIRE(read->job.sources.size() == 2);
    CHECK(read->job.sources[1].name == "a.cuh");
    CHECK(read->job.sources[1].text == kOddText);
}

TEST_CASE("a result survives the pipe", "[jit]") {
    CompiledImage const image = sample_image();
    auto const read = decode_result(encode_result(image));
    REQUIRE(read.has_value());
    REQUIRE(read->ok());
    CHECK((*read)->image == image.image);
    CHECK((*read)->is_ptx);
    CHECK((*read)->log == image.log);
    CHECK((*read)->compile_ms == image.compile_ms);
    CHECK((*read)->nvrtc_version == image.nvrtc_version);
    CHECK((*read)->registers == 1);
    CHECK((*read)->spill_bytes == 2);
    CHECK((*read)->stack_bytes == 3);
    CHECK((*read)->static_smem == 4);
}

TEST_CASE("an error survives the pipe", "[jit]") {
    auto const read = decode_result(encode_result(Status(XQAJIT_COMPILE_FAILED, "line", "log\nlog")));
    REQUIRE(read.has_value());
    REQUIRE(!read->ok());
    CHECK(read->status().code() == XQAJIT_COMPILE_FAILED);
    CHECK(read->status().message() == "line");
    CHECK(read->status().detail() == "log\nlog");
}

TEST_CASE("a message that is cut anywhere, or has more behind it, is no message", "[jit]") {
    std::string const request = encode_request({fake_identity(), sample_job()});
    std::string const result = encode_result(sample_image());
    for (std::size_t length = 0; length < request.size(); ++length) CHECK(!decode_request(request.substr(0, length)).has_value());
    for (std::size_t length = 0; length < result.size(); ++length) CHECK(!decode_result(result.substr(0, length)).has_value());
    CHECK(!decode_request(request + "x").has_value());
    CHECK(!decode_result(result + "x").has_value());
}

TEST_CASE("nonsense is no message", "[jit]") {
    std::string const magic = "xqajit-worker-2\n";
    for (std::string const body :
         {"status 99999999999999999999\n0\n", "status -1\n0\n", "status 1\n7\n", "end 0\n", "end 0\n\n", "status\n",
          "status 2\n42\nend 0\n\n", "value 1\n1\nend 0\n\n", "text 1\n1\nend 0\n\n", "a 1x\n1\nend 0\n\n"}) {
        INFO(body);
        CHECK(!decode_result(magic + body).has_value());
    }
    CHECK(!decode_request(magic + "end 0\n\n").has_value());
    CHECK(!decode_request(magic + "build 2\n0a\nend 0\n\n").has_value());
    CHECK(!decode_request(magic + "value 1\n1\nend 0\n\n").has_value());
    CHECK(!decode_request(magic + "text 1\n1\nend 0\n\n").has_value());
    CHECK(!decode_result("xqajit-worker-1\nstatus 1\n0\nend 0\n\n").has_value());
}
