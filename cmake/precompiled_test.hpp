// The same for unit tests.
#pragma once

#include <gtest/gtest.h>

#include "precompiled.hpp"
