#include "seal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

static uint64_t rotate(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static void sip_rounds(uint64_t* v, int count) {
  for (; count > 0; --count) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32) + v[3];
    v[2] += v[1];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
  }
}

static uint64_t siphash(uint64_t k0, uint64_t k1, const char* text, size_t size) {
  uint64_t v[] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573};
  for (size_t at = 0; at <= size; at += 8) {
    unsigned char bytes[8] = {0};
    memcpy(bytes, text + at, size - at < 8 ? size - at : 8);
    if (size - at < 8) bytes[7] = (unsigned char)size;
    uint64_t word = 0;
    for (int i = 7; i >= 0; --i) word = word << 8 | bytes[i];
    v[3] ^= word;
    sip_rounds(v, 2);
    v[0] ^= word;
  }
  v[2] ^= 0xff;
  sip_rounds(v, 4);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint64_t number_of(const char* digits) {
  char copy[17] = {0};
  memcpy(copy, digits, 16);
  return strtoull(copy, NULL, 16);
}

/* The digits of a channel's token. */
static const char* token_of(const char* channel) {
  const char* const token = channel != NULL ? strstr(channel, "token=") : NULL;
  return token != NULL && strlen(token) >= strlen("token=") + 32 ? token + strlen("token=") : NULL;
}

char* seal(const char* channel, char direction, const char* stamp, const char* text) {
  const char* const token = token_of(channel);
  const char* const fields = text + strlen("aml-dist;1;0123456789abcdef");
  char* const covered = text_format("%c%.16s%.16s%s", direction, stamp, stamp + 17, fields);
  const uint64_t code = siphash(number_of(token), number_of(token + 16), covered, strlen(covered));
  char* const datagram = text_format("aml-dist;2;%s;%016llx%s", stamp, (unsigned long long)code, fields);
  free(covered);
  return datagram;
}

char* unseal(const char* channel, char direction, const char* datagram, size_t size) {
  const char* const token = token_of(channel);
  if (token == NULL || size < SEALED_HEAD) return NULL;
  char* const text = text_format("aml-dist;1;%.16s%.*s", token, (int)(size - SEALED_HEAD), datagram + SEALED_HEAD);
  char* const stamp = text_format("%.33s", datagram + strlen("aml-dist;2;"));
  char* const again = seal(channel, direction, stamp, text);
  const int same = strlen(again) == size && memcmp(again, datagram, size) == 0;
  free(stamp);
  free(again);
  if (same) return text;
  free(text);
  return NULL;
}
