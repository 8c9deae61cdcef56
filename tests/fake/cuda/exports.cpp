#include <string_view>

#include "functions.h"

// The two symbols that src/driver looks up by plain name. cuda.h's macro makes the first one cuGetProcAddress_v2.
CUresult cuGetProcAddress(char const* symbol, void** function, int, cuuint64_t, CUdriverProcAddressQueryResult* status) {
    ENTER(cuGetProcAddress);
#define ROW(name) {#name, reinterpret_cast<void*>(&fake::fake_##name)},
    static std::map<std::string_view, void*> const table = {XQAJIT_CUDA_FUNCTIONS(ROW)};
#undef ROW
    auto const found = table.find(symbol);
    *function = found != table.end() ? found->second : nullptr;
    if (status != nullptr) *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuDriverGetVersion(int* version) { return fake::fake_cuDriverGetVersion(version); }
