#pragma once

// The functions of Windows. The first header has the types for the others.
// clang-format off
#include <windows.h>
#include <bcrypt.h>
#include <psapi.h>
#include <shellapi.h>
// clang-format on
