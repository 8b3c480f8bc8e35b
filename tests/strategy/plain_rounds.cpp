// SPDX-License-Identifier: Apache-2.0
#include "tests/strategy/plain_rounds.h"

#include <cmath>
#include <functional>
#include <map>

namespace starling::strategy::plain {
namespace {

constexpr double kEta = 0.1;
constexpr std::array<Vector, 2> kA = {{{1, 2}, {3, 1}}};
constexpr std::array<Vector, 2> kB = {{{1, 0}, {-1, 2}}};
constexpr std::array<int, 2> kTau = {3, 2};
constexpr std::array<double, 2> kP = {0.25, 0.75};

double gradient(int k, double y, int i) { return kA[k][i] * (y - kB[k][i]); }

double loss(int k, const Vector& x) {
  double sum = 0;
  for (int i = 0; i < 2; ++i) sum += kA[k][i] * std::pow(x[i] - kB[k][i], 2) / 2;
  return sum;
}

using Extra = std::function<double(int k, double y, int i)>;  // is added to the gradient

// y_k after tau_k steps with heavy-ball momentum rho.
Vector local(int k, const Vector& x, const Extra& extra = nullptr, double rho = 0) {
  Vector y = x;
  for (int i = 0; i < 2; ++i) {
    double velocity = 0;
    for (int step = 0; step < kTau[k]; ++step) {
      velocity = rho * velocity + gradient(k, y[i], i) + (extra ? extra(k, y[i], i) : 0);
      y[i] -= kEta * velocity;
    }
  }
  return y;
}

Extra towards(const Vector& x, double mu) {
  return [x, mu](int, double y, int i) { return mu * (y - x[i]); };
}

using Round = std::function<Vector(const Vector& x)>;

// sum_k p_k y_k - x
Vector mean_delta(const Vector& x, const std::array<double, 2>& p, const Extra& extra = nullptr) {
  Vector delta = {};
  for (int k = 0; k < 2; ++k) {
    const Vector y = local(k, x, extra);
    for (int i = 0; i < 2; ++i) delta[i] += p[k] * (y[i] - x[i]);
  }
  return delta;
}

constexpr std::array<double, 2> kUniform = {0.5, 0.5};

Vector fedavg(const Vector& x) {
  const Vector delta = mean_delta(x, kP);
  return {x[0] + delta[0], x[1] + delta[1]};
}

Vector fedprox(const Vector& x) {
  const Vector delta = mean_delta(x, kP, towards(x, 0.5));
  return {x[0] + delta[0], x[1] + delta[1]};
}

Round fedavgm() {
  return [v = Vector()](const Vector& x) mutable {
    const Vector delta = mean_delta(x, kP);
    Vector next;
    for (int i = 0; i < 2; ++i) {
      v[i] = 0.9 * v[i] + delta[i];
      next[i] = x[i] + v[i];
    }
    return next;
  };
}

Round adaptive(double beta1, const std::function<double(double v, double square)>& second) {
  return [m = Vector(), v = Vector{1e-6, 1e-6}, beta1, second](const Vector& x) mutable {
    const Vector delta = mean_delta(x, kP);
    Vector next;
    for (int i = 0; i < 2; ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * delta[i];
      v[i] = second(v[i], delta[i] * delta[i]);
      next[i] = x[i] + 0.1 * m[i] / (std::sqrt(v[i]) + 1e-3);
    }
    return next;
  };
}

// FedNova, eq. 9 with tau_eff = sum_k p_k |a_k|_1.
Vector fednova(const Vector& x, double rho, double mu) {
  double effective = 0;
  Vector direction = {};
  for (int k = 0; k < 2; ++k) {
    double a = kTau[k];
    if (rho > 0) a = (a - rho * (1 - std::pow(rho, a)) / (1 - rho)) / (1 - rho);
    if (mu > 0) a = (1 - std::pow(1 - kEta * mu, a)) / (kEta * mu);
    const Vector y = local(k, x, towards(x, mu), rho);
    effective += kP[k] * a;
    for (int i = 0; i < 2; ++i) direction[i] += kP[k] * (x[i] - y[i]) / (kEta * a);
  }
  return {x[0] - effective * kEta * direction[0], x[1] - effective * kEta * direction[1]};
}

Round scaffold(bool full_gradient) {
  return [c = Vector(), own = std::array<Vector, 2>(), full_gradient](const Vector& x) mutable {
    const auto drift = [&](int k, double, int i) { return c[i] - own[k][i]; };
    Vector next = x, next_c = c;
    std::array<Vector, 2> next_own;
    for (int k = 0; k < 2; ++k) {
      const Vector y = local(k, x, drift);
      for (int i = 0; i < 2; ++i) {
        next_own[k][i] = full_gradient ? gradient(k, x[i], i)
                                       : own[k][i] - c[i] + (x[i] - y[i]) / (kTau[k] * kEta);
        next[i] += (y[i] - x[i]) / 2;
        next_c[i] += (next_own[k][i] - own[k][i]) / 2;
      }
    }
    c = next_c;
    own = next_own;
    return next;
  };
}

Vector qfedavg(const Vector& x) {
  constexpr double kQ = 1;
  Vector sum = {};
  double h = 0;
  for (int k = 0; k < 2; ++k) {
    const Vector y = local(k, x);
    const double f = loss(k, x);
    double square = 0;
    for (int i = 0; i < 2; ++i) {
      const double d = (x[i] - y[i]) / kEta;
      sum[i] += std::pow(f, kQ) * d;
      square += d * d;
    }
    h += kQ * std::pow(f, kQ - 1) * square + std::pow(f, kQ) / kEta;
  }
  return {x[0] - sum[0] / h, x[1] - sum[1] / h};
}

Round feddyn() {
  constexpr double kAlpha = 0.5;
  return [h = Vector(), own = std::array<Vector, 2>()](const Vector& x) mutable {
    const auto extra = [&](int k, double y, int i) { return kAlpha * (y - x[i]) - own[k][i]; };
    const std::array<Vector, 2> y = {local(0, x, extra), local(1, x, extra)};
    Vector next;
    for (int i = 0; i < 2; ++i) {
      double change = 0;
      for (int k = 0; k < 2; ++k) {
        own[k][i] -= kAlpha * (y[k][i] - x[i]);
        change += y[k][i] - x[i];
      }
      h[i] -= kAlpha * change / 2;
      next[i] = (y[0][i] + y[1][i]) / 2 - h[i] / kAlpha;
    }
    return next;
  };
}

// torch.optim.SGD(lr = 0.7, momentum = 0.9, nesterov = True) on the gradient x - mean y.
Round diloco() {
  return [buffer = Vector()](const Vector& x) mutable {
    const Vector delta = mean_delta(x, kUniform);
    Vector next;
    for (int i = 0; i < 2; ++i) {
      const double outer = -delta[i];
      buffer[i] = 0.9 * buffer[i] + outer;
      next[i] = x[i] - 0.7 * (outer + 0.9 * buffer[i]);
    }
    return next;
  };
}

Round make(const std::string& strategy) {
  const auto adam = [](double v, double square) { return 0.99 * v + 0.01 * square; };
  const auto yogi = [](double v, double square) {
    const double sign = v > square ? 1 : v < square ? -1 : 0;
    return v - 0.01 * square * sign;
  };
  const std::map<std::string, Round> all = {
      {"fedavg", fedavg},
      {"fedprox", fedprox},
      {"fedavgm", fedavgm()},
      {"fedadagrad", adaptive(0, std::plus<>())},
      {"fedadam", adaptive(0.9, adam)},
      {"fedyogi", adaptive(0.9, yogi)},
      {"fednova", [](const Vector& x) { return fednova(x, 0, 0); }},
      {"fednova-momentum", [](const Vector& x) { return fednova(x, 0.9, 0); }},
      {"fednova-proximal", [](const Vector& x) { return fednova(x, 0, 0.5); }},
      {"scaffold-I", scaffold(true)},
      {"scaffold-II", scaffold(false)},
      {"qfedavg", qfedavg},
      {"feddyn", feddyn()},
      {"diloco", diloco()}};
  return all.at(strategy);
}

}  // namespace

std::vector<Vector> rounds(const std::string& strategy, int count) {
  const Round round = make(strategy);
  std::vector<Vector> all;
  Vector x = {};
  for (int i = 0; i < count; ++i) all.push_back(x = round(x));
  return all;
}

}  // namespace starling::strategy::plain
