// What each family serves on an arch, found by asking validation and the admission rules about candidate shapes: there is no second
// list that could differ from them.
#include <nlohmann/json.hpp>

#include <functional>

#include "base/json.h"
#include "jit/source_bundle.h"
#include "service/impl.h"

namespace xqajit {
namespace {

using Json = nlohmann::ordered_json;

XQAParams plain_shape() {
    XQAParams params = XQAJIT_PARAMS_INIT;
    params.q_dtype = XQAJIT_DTYPE_BF16;
    params.num_q_heads = 8;
    params.num_kv_heads = 1;
    params.head_dim = 128;
    params.page_size = 64;
    return params;
}

XQAParams mla_shape() {
    XQAParams params = plain_shape();
    params.mla = 1;
    params.head_dim = 576;
    params.head_dim_v = 512;
    params.qk_scale = 1.0f;
    return params;
}

class Asker {
public:
    Asker(Family family, ArchFacts const& arch) : family_(family), arch_(arch) {}

    bool admits(XQAParams const& params) const {
        Result<XQAParams> const shape = checked(params);
        return shape.ok() && admit(family_, *shape, arch_).ok;
    }
    // The values of one field for which `base` with that field is admitted.
    Json values(XQAParams const& base, std::uint32_t first, std::uint32_t last,
                std::function<void(XQAParams&, std::uint32_t)> const& set) const {
        Json list = Json::array();
        for (std::uint32_t value = first; value <= last; ++value) {
            XQAParams params = base;
            set(params, value);
            if (admits(params)) list.push_back(value);
        }
        return list;
    }
    bool with(XQAParams const& base, std::function<void(XQAParams&)> const& set) const {
        XQAParams params = base;
        set(params);
        return admits(params);
    }

private:
    Family family_;
    ArchFacts const& arch_;
};

Json divisions_json(Asker const& ask, XQAParams const& base) {
    Json list = Json::array();
    for (std::int32_t division = XQAJIT_DIVISION_STATIC; division <= XQAJIT_DIVISION_INVARIANT; ++division) {
        if (ask.with(base, [division](XQAParams& p) { p.division = division; })) list.push_back(division_name(division));
    }
    return list;
}

// Triples of types by name.
Json dtypes_json(Asker const& ask, XQAParams const& base) {
    Json list = Json::array();
    for (std::int32_t const q : {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3}) {
        for (std::int32_t kv = XQAJIT_DTYPE_FP16; kv <= XQAJIT_DTYPE_NVFP4; ++kv) {
            for (std::int32_t out = XQAJIT_DTYPE_FP16; out <= XQAJIT_DTYPE_FP8_E4M3; ++out) {
                XQAParams params = base;
                params.q_dtype = q;
                params.kv_dtype = kv;
                params.out_dtype = out;
                if (ask.admits(params)) list.push_back({{"q", dtype_name(q)}, {"kv", dtype_name(kv)}, {"out", dtype_name(out)}});
            }
        }
    }
    return list;
}

// Whether a launch may give each request its own number of draft rows: asked of the check that a launch makes.
bool takes_ragged_drafts(XQAParams const& draft) {
    Result<XQAParams> const shape = checked(draft);
    if (!shape.ok()) return false;
    // Nothing is read: aligned addresses that are not null are all that the check looks at.
    alignas(256) static std::int32_t const memory[64] = {};
    RunArgs args = XQAJIT_RUN_ARGS_INIT;
    args.batch = 1;
    args.q_len = shape->q_len;
    args.max_pages = 1;
    args.q = args.k = memory;
    args.v = shape->mla != 0 ? nullptr : memory;
    args.out = const_cast<std::int32_t*>(memory);
    args.page_table = args.seq_lens = args.cu_q_len = memory;
    return normalize_args(*shape, args).ok();
}

Json drafts_json(Asker const& ask, XQAParams const& base) {
    Json json = Json::object();
    for (std::int32_t const kind : {XQAJIT_SPEC_DEC_LINEAR, XQAJIT_SPEC_DEC_TREE}) {
        XQAParams draft = base;
        draft.spec_dec = kind;
        json[spec_dec_name(kind)] = {{"q_len", ask.values(draft, 1, 80, [](XQAParams& p, std::uint32_t v) { p.q_len = v; })},
                                     {"with_window", ask.with(draft, [](XQAParams& p) { p.q_len = 4, p.sliding_window = 64; })}};
    }
    XQAParams linear = base;
    linear.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
    linear.q_len = 4;
    json["ragged"] = ask.admits(linear) && takes_ragged_drafts(linear);
    return json;
}

Json shapes_json(Asker const& ask, XQAParams const& base) {
    if (!ask.admits(base)) return nullptr;
    XQAParams quantized = base;
    quantized.kv_dtype = XQAJIT_DTYPE_FP8_E4M3;
    return {{"page_sizes", ask.values(base, 0, 2048, [](XQAParams& p, std::uint32_t v) { p.page_size = v; })},
            {"head_dims", ask.values(base, 1, 640,
                                     [](XQAParams& p, std::uint32_t v) {
                                         p.head_dim = v;
                                         if (p.mla == 0) p.head_dim_v = 0;
                                     })},
            {"group_sizes", ask.values(base, 1, 160, [](XQAParams& p, std::uint32_t v) { p.num_q_heads = v * p.num_kv_heads; })},
            {"beam_widths", ask.values(base, 1, 16, [](XQAParams& p, std::uint32_t v) { p.beam_width = v; })},
            {"divisions", divisions_json(ask, base)},
            {"dtypes", dtypes_json(ask, base)},
            {"drafts", drafts_json(ask, base)},
            {"sliding_window", ask.with(base, [](XQAParams& p) { p.sliding_window = 64; })},
            {"softcap", ask.with(base, [](XQAParams& p) { p.softcap = 30.0f; })},
            {"sinks", ask.with(base, [](XQAParams& p) { p.sinks = 1; })},
            {"lse", ask.with(base, [](XQAParams& p) { p.lse = 1; })},
            {"input_kv", ask.with(base, [](XQAParams& p) { p.input_kv = 1, p.rope_style = XQAJIT_ROPE_NEOX; })},
            {"skip_softmax", ask.with(base, [](XQAParams& p) { p.skip_softmax = 1, p.skip_softmax_threshold = 1.0f; })},
            {"numeric_fp8", ask.with(quantized, [](XQAParams& p) { p.numeric = XQAJIT_NUMERIC_FP8; })}};
}

}  // namespace

Result<std::string> Service::capabilities(char const* arch) {
    Result<Target> const target = target_for_document(impl_->settings, arch);
    if (!target.ok()) return target.status();
    Json families = Json::array();
    for (Family const family : kFamilies) {
        Asker const ask(family, target->arch);
        families.push_back({{"family", family_name(family)},
                            {"built", family_has_kernel(family)},
                            {"decode", shapes_json(ask, plain_shape())},
                            {"mla", shapes_json(ask, mla_shape())}});
    }
    Json const json = {{"schema", "xqajit.capabilities/1"},
                       {"arch", target->arch.target},
                       {"arch_origin", target->origin},
                       {"families", std::move(families)}};
    return to_text(json, 1);
}

}  // namespace xqajit
