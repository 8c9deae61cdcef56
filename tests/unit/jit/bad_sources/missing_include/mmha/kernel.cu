#include "common/nowhere.cuh"
