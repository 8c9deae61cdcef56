// An engine written in C++17: version, one shape explained without a GPU, and a refusal with its reason. argv[1]: a cache directory.
extern "C" {  // as engines include C headers that may lack it
#include <xqajit/xqajit.h>
}
#include <cstdio>
#include <xqajit/xqajit.hpp>

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    std::printf("xqajit %s\n", xqajit_version());
    xqajit::Service service(argv[1]);
    xqajit_params const params = xqajit::params_from_json(
        R"({"q_dtype": "bf16", "kv_dtype": "fp8_e4m3", "num_q_heads": 64, "num_kv_heads": 8, "head_dim": 128, "page_size": 32})");
    std::puts(service.explain(params, "sm_90a", 8, 4096).c_str());
    if (!service.supports(params, "sm_80")) return 1;

    xqajit_params assigned = XQAJIT_PARAMS_INIT;
    assigned.head_dim = 128;
    assigned = XQAJIT_PARAMS_INIT;
    if (assigned.struct_size != sizeof assigned || assigned.head_dim != 0) return 1;

    xqajit_params refused = params;
    refused.num_q_heads = 65;
    try {
        service.explain(refused, "sm_90a", 8, 4096);
    } catch (xqajit::Error const& error) {
        std::printf("refused: %s\n", error.what());
        return error.code() == XQAJIT_INVALID_ARGUMENT ? 0 : 1;
    }
    return 1;
}
