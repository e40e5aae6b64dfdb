// Python's pickles: dumps of PyTorch's flight recorder, which anybody may have written.
#include "aml_dist/trace/pickle.hpp"

#include "fuzz.hpp"

namespace amldist::fuzz {

const std::string_view separator = "q";

void try_input(std::string_view input) {
  // A value is some 40 bytes, and one byte of a pickle makes one.
  const std::size_t most_bytes = (input.size() + 64) * 1024;
  const auto pickle = within(most_bytes, [&] { return tools::Pickle::read(std::string(input)); });
  if (!pickle) return require_sentence(pickle.error().message);
  const auto& top = pickle->top();
  const auto* const entries = top.find("entries");
  require(entries == nullptr || top.elements().empty(), "a dictionary is no list");
  if (entries == nullptr) return;
  for (const auto* const each : entries->elements()) {
    require(each != nullptr, "a list has no holes");
    require(each->text().size() <= input.size(), "a text is part of the input");
  }
}

}  // namespace amldist::fuzz
