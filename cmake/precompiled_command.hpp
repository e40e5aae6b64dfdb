// The same for commands, with the library for JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "precompiled.hpp"
