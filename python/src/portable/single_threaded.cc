// glibc has this variable since 2.32, and libstdc++ reads it: false is true of any process.
extern "C" {
extern const char __libc_single_threaded;
const char __libc_single_threaded = 0;
}
