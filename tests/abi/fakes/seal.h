/* The datagrams between srun and the nodes as the network has them, written a second time: what the plugin seals, this
 * must be able to read. Texts are "aml-dist;1;TOKEN;FIELDS" here. */
#ifndef AMLDIST_TESTS_ABI_SEAL_H
#define AMLDIST_TESTS_ABI_SEAL_H

#include <stddef.h>

enum { SEALED_HEAD = sizeof "aml-dist;2;0123456789abcdef;0123456789abcdef;0123456789abcdef" - 1 };

/* `channel` is the variable from which srun's nodes have the token. `stamp` is "SENDER;TIME" in hexadecimal digits, and
 * `direction` 'q' for datagrams to srun, 'a' for those to a node. Texts are the caller's to free. */
char* seal(const char* channel, char direction, const char* stamp, const char* text);
/* NULL unless the code is right. */
char* unseal(const char* channel, char direction, const char* datagram, size_t size);

#endif
