/* An engine written in C99: version, then one shape explained without a GPU. argv[1]: a cache directory. */
#include <stdio.h>
#include <string.h>

#include <xqajit/xqajit.h>

static int failed(char const* call) {
    fprintf(stderr, "%s: %s\n", call, xqajit_last_error());
    return 1;
}

int main(int argc, char** argv) {
    xqajit_service* service = NULL;
    xqajit_params params = XQAJIT_PARAMS_INIT;
    char* json = NULL;
    int ok;

    if (argc != 2) return 2;
    params.head_dim = 128;
    params = (xqajit_params)XQAJIT_PARAMS_INIT;
    if (params.struct_size != sizeof params || params.head_dim != 0) return 1;
    printf("xqajit %s\n", xqajit_version());
    if (xqajit_create(argv[1], &service) != XQAJIT_OK) return failed("xqajit_create");

    params.q_dtype = XQAJIT_DTYPE_BF16;
    params.num_q_heads = 64;
    params.num_kv_heads = 8;
    params.head_dim = 128;
    params.page_size = 32;
    if (xqajit_explain(service, &params, "sm_90a", 8, 4096, &json) != XQAJIT_OK) return failed("xqajit_explain");
    ok = strstr(json, "\"schema\"") != NULL;
    puts(json);
    xqajit_free(json);
    xqajit_destroy(service);
    return ok ? 0 : 1;
}
