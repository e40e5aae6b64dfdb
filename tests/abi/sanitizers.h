/* Whether this program is built with a sanitizer, which brings its own malloc and its own crash reports. */
#ifndef AMLDIST_TESTS_ABI_SANITIZERS_H
#define AMLDIST_TESTS_ABI_SANITIZERS_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define HOST_IS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HOST_IS_SANITIZED 1
#endif
#ifndef HOST_IS_SANITIZED
#define HOST_IS_SANITIZED 0
#endif

#if HOST_IS_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

#endif
