#include "world/wireup/key.hpp"

#include <gtest/gtest.h>

#include "base/text/hex.hpp"
#include "world/wireup/step_secret.hpp"

namespace amldist::world {
namespace {

std::string hex_of(const Code& code) {
  std::string out;
  for (const unsigned char byte : code) append_hex(out, byte);
  return out;
}

TEST(Key, HashesAsTheStandardSays) {  // FIPS 180-4, appendix B.1
  EXPECT_EQ(hex_of(hash_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Key, IsReadFromDigitsOnly) {
  const std::string digits = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
  const auto key = Key::from_hex(digits);
  ASSERT_TRUE(key);
  EXPECT_EQ(key->to_hex(), "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
  for (const std::string& wrong : {std::string(), digits.substr(1), digits + "0", "0x" + digits.substr(2),
                                   digits.substr(0, 63) + "g", digits.substr(0, 62) + " 1"}) {
    EXPECT_FALSE(Key::from_hex(wrong)) << wrong;
  }
}

TEST(Key, DiffersForEveryPurpose) {
  const Key key = Key::from_secret("secret");
  EXPECT_EQ(key.derive("a"), key.derive("a"));
  EXPECT_FALSE(key.derive("a") == key.derive("b"));
  EXPECT_FALSE(key.derive("a") == key);
  EXPECT_FALSE(key.derive("a") == Key::from_secret("other").derive("a"));
  EXPECT_FALSE(Key().derive("a") == key.derive("a"));
}

TEST(Key, ACodeDependsOnWhereTheTextsEnd) {
  const Key key = Key::from_secret("secret");
  EXPECT_NE(key.code_of({"ab", "c"}), key.code_of({"a", "bc"}));
  EXPECT_NE(key.code_of({"abc"}), key.code_of({"abc", ""}));
}

TEST(Key, RandomOnesDiffer) {
  const auto one = Key::random();
  const auto other = Key::random();
  ASSERT_TRUE(one && other);
  EXPECT_FALSE(*one == *other);
}

Result<Credentials> credentials_with(std::optional<std::string> value) {
  return credentials_of_environment([&](std::string_view name) -> std::optional<std::string> {
    return name == "AMLDIST_STEP_SECRET" ? value : std::nullopt;
  });
}

TEST(StepSecret, ComesFromTheEnvironment) {
  const std::string digits(64, 'a');
  const auto credentials = credentials_with(digits);
  ASSERT_TRUE(credentials);
  EXPECT_EQ(credentials->trust, Trust::authenticated);
  EXPECT_EQ(credentials->key, *Key::from_hex(digits));
}

TEST(StepSecret, WithoutOneTheWorldIsOpen) {
  EXPECT_EQ(credentials_with(std::nullopt)->trust, Trust::open);
  EXPECT_EQ(credentials_with("")->trust, Trust::open);
}

TEST(StepSecret, AMalformedOneIsRefusedAndNotShown) {
  const auto credentials = credentials_with("hunter2");
  ASSERT_FALSE(credentials);
  EXPECT_EQ(credentials.error().message.find("hunter2"), std::string::npos);
}

}  // namespace
}  // namespace amldist::world
