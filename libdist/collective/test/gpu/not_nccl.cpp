// A library that somebody names as NCCL by mistake.
extern "C" __attribute__((visibility("default"))) int something_else() { return 42; }
