// Shows by its one symbol that it is the fake's.
extern "C" {
extern int const fake_nvrtc_builtins;
int const fake_nvrtc_builtins = 1;
}
