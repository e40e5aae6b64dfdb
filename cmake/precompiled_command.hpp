// The same for commands, with the libraries for options and JSON.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "precompiled.hpp"
