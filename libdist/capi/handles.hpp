// What the C interface's handles hold.
#pragma once

#include <memory>

#include "collective/communicator.hpp"

struct amldist_comm {
  std::unique_ptr<amldist::collective::Communicator> impl;
};
struct amldist_request {
  std::shared_ptr<amldist::collective::Request> impl;
};
