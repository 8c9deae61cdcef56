#include "jit/worker_protocol.h"

#include <charconv>
#include <cstdio>
#include <map>

namespace xqajit {

namespace {

constexpr std::string_view kMagic = "xqajit-worker-2\n";

class Writer {
public:
    void add(std::string_view tag, std::string_view value) {
        text_ += tag;
        text_ += ' ' + std::to_string(value.size()) + '\n';
        text_ += value;
        text_ += '\n';
    }
    void add(std::string_view tag, std::uint64_t value) { add(tag, std::to_string(value)); }
    std::string finish() {
        add("end", "");
        return std::move(text_);
    }

private:
    std::string text_{kMagic};
};

template <class Number> Number number_in(std::string_view text) {
    Number number{};
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

// Calls take(tag, value) for each field. False unless the message is whole.
template <class Take> bool read_fields(std::string_view text, Take const& take) {
    if (!text.starts_with(kMagic)) return false;
    text.remove_prefix(kMagic.size());
    while (!text.empty()) {
        std::size_t const blank = text.find(' ');
        std::size_t const end = text.find('\n');
        if (blank == std::string_view::npos || end == std::string_view::npos || blank > end) return false;
        std::string_view const tag = text.substr(0, blank);
        std::string_view const digits = text.substr(blank + 1, end - blank - 1);
        std::size_t bytes = 0;
        auto const [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
        if (error != std::errc() || stop != digits.data() + digits.size()) return false;
        text.remove_prefix(end + 1);
        if (bytes >= text.size() || text[bytes] != '\n') return false;
        if (tag == "end") return bytes == 0 && text.size() == 1;
        take(tag, text.substr(0, bytes));
        text.remove_prefix(bytes + 1);
    }
    return false;
}

}  // namespace

std::string encode_request(WorkerRequest const& request) {
    Writer writer;
    writer.add("nvrtc", request.nvrtc.path);
    writer.add("build", request.nvrtc.build.hex());
    writer.add("name", request.job.name);
    writer.add("target", request.job.target);
    for (auto const& option : request.job.options) writer.add("option", option);
    for (auto const& [name, value] : request.job.macros.macros) {
        writer.add("macro", name);
        writer.add("value", value);
    }
    for (auto const& source : request.job.sources) {
        writer.add("source", source.name);
        writer.add("text", source.text);
    }
    return writer.finish();
}

std::optional<WorkerRequest> decode_request(std::string_view text) {
    WorkerRequest request;
    bool known_build = false;
    bool paired = true;  // a value belongs to the macro before it, a text to the source before it
    bool const whole = read_fields(text, [&](std::string_view tag, std::string_view value) {
        auto& [name, target, options, macros, sources] = request.job;
        if (tag == "nvrtc") request.nvrtc.path = value;
        if (tag == "build") known_build = Digest::parse(value, request.nvrtc.build);
        if (tag == "name") name = value;
        if (tag == "target") target = value;
        if (tag == "option") options.emplace_back(value);
        if (tag == "macro") macros.macros.emplace_back(value, "");
        if (tag == "source") sources.push_back({value, {}});
        if (tag == "value" && (paired = paired && !macros.macros.empty())) macros.macros.back().second = value;
        if (tag == "text" && (paired = paired && !sources.empty())) sources.back().text = value;
    });
    if (!whole || !known_build || !paired) return std::nullopt;
    return request;
}

std::string encode_result(Result<CompiledImage> const& result) {
    Writer writer;
    Status const status = result.status();
    writer.add("status", static_cast<std::uint64_t>(status.code()));
    if (!status.ok()) {
        writer.add("message", status.message());
        writer.add("detail", status.detail());
        return writer.finish();
    }
    char milliseconds[32];
    std::snprintf(milliseconds, sizeof milliseconds, "%.3f", result->compile_ms);
    writer.add("image", result->image);
    writer.add("is_ptx", result->is_ptx);
    writer.add("log", result->log);
    writer.add("compile_ms", milliseconds);
    writer.add("nvrtc_version", result->nvrtc_version);
    writer.add("registers", result->registers);
    writer.add("spill_bytes", result->spill_bytes);
    writer.add("stack_bytes", result->stack_bytes);
    writer.add("static_smem", result->static_smem);
    return writer.finish();
}

std::optional<Result<CompiledImage>> decode_result(std::string_view text) {
    std::map<std::string_view, std::string_view> fields;
    if (!read_fields(text, [&](std::string_view tag, std::string_view value) { fields[tag] = value; })) return std::nullopt;
    if (!fields.contains("status")) return std::nullopt;
    int const code = number_in<int>(fields["status"]);
    if (code < XQAJIT_OK || code > XQAJIT_INTERNAL) return std::nullopt;
    if (code != XQAJIT_OK)
        return Result<CompiledImage>(
            Status(static_cast<xqajit_status>(code), std::string(fields["message"]), std::string(fields["detail"])));
    CompiledImage compiled;
    compiled.image = fields["image"];
    compiled.is_ptx = fields["is_ptx"] == "1";
    compiled.log = fields["log"];
    compiled.compile_ms = number_in<double>(fields["compile_ms"]);
    compiled.nvrtc_version = fields["nvrtc_version"];
    compiled.registers = number_in<std::uint32_t>(fields["registers"]);
    compiled.spill_bytes = number_in<std::uint32_t>(fields["spill_bytes"]);
    compiled.stack_bytes = number_in<std::uint32_t>(fields["stack_bytes"]);
    compiled.static_smem = number_in<std::uint32_t>(fields["static_smem"]);
    return Result<CompiledImage>(std::move(compiled));
}

}  // namespace xqajit
