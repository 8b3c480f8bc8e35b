#pragma once
#include <cstdlib>
inline bool planted(int n) { static const int k = std::getenv("PLANT") ? std::atoi(std::getenv("PLANT")) : 0; return k == n; }
