#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "train/train_log.h"

namespace slideway {
namespace {

constexpr double kWidth = 720, kHeight = 360, kLeft = 56, kRight = 16, kTop = 28, kBottom = 40;

// 1, 2 or 5 times a power of ten: about `parts` of them cover span.
double round_unit(double span, int parts) {
  const double raw = span / parts, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double step : {1.0, 2.0, 5.0})
    if (raw <= step * power) return step * power;
  return 10 * power;
}

struct Axes {
  double x0, x1, y0, y1;  // the values at the edges
  double x(double value) const { return kLeft + (value - x0) / (x1 - x0) * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return kHeight - kBottom - (value - y0) / (y1 - y0) * (kHeight - kTop - kBottom);
  }
};

std::string polyline(const Axes& axes, const std::vector<std::pair<double, double>>& points,
                     const char* style) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << "<polyline fill='none' " << style << " points='";
  for (const auto& [x, y] : points) out << axes.x(x) << ',' << axes.y(y) << ' ';
  out << "'/>\n";
  return out.str();
}

void draw_grid(std::ostream& out, const Axes& axes) {
  const double y_unit = round_unit(axes.y1 - axes.y0, 5),
               x_unit = std::max(1.0, round_unit(axes.x1 - axes.x0, 6));
  for (double y = std::ceil(axes.y0 / y_unit) * y_unit; y <= axes.y1 + 1e-9; y += y_unit)
    out << "<line x1='" << kLeft << "' x2='" << kWidth - kRight << "' y1='" << axes.y(y) << "' y2='"
        << axes.y(y) << "' stroke='#ddd'/><text x='" << kLeft - 6 << "' y='" << axes.y(y) + 4
        << "' text-anchor='end'>" << std::round(y * 1e6) / 1e6 << "</text>\n";
  for (double x = std::ceil(axes.x0 / x_unit) * x_unit; x <= axes.x1 + 1e-9; x += x_unit)
    out << "<text x='" << axes.x(x) << "' y='" << kHeight - kBottom + 16 << "' text-anchor='middle'>" << x
        << "</text>\n";
}

}  // namespace

std::string loss_svg(const std::vector<LogLine>& lines) {
  std::vector<std::pair<double, double>> values, mean;
  double running = 0, low = HUGE_VAL, high = -HUGE_VAL;
  for (const LogLine& line : lines) {
    if (!std::isfinite(line.loss)) continue;
    running = values.empty() ? line.loss : 0.9 * running + 0.1 * line.loss;
    values.emplace_back(double(line.step), line.loss);
    mean.emplace_back(double(line.step), running);
    low = std::min(low, line.loss);
    high = std::max(high, line.loss);
  }
  std::ostringstream out;
  out << "<svg xmlns='http://www.w3.org/2000/svg' width='" << kWidth << "' height='" << kHeight
      << "' viewBox='0 0 " << kWidth << ' ' << kHeight
      << "' font-family='sans-serif' font-size='12' fill='#333'>\n"
      << "<rect width='100%' height='100%' fill='#fff'/>\n<text x='" << kLeft
      << "' y='18' font-size='14'>training loss"
      << "</text>\n<text x='" << (kLeft + kWidth - kRight) / 2 << "' y='" << kHeight - 6
      << "' text-anchor='middle'>step</text>\n";
  if (!values.empty()) {
    const double margin = std::max(1e-3, 0.05 * (high - low));
    const double last = std::max(values.back().first, values.front().first + 1);
    const Axes axes{values.front().first, last, std::max(0.0, low - margin), high + margin};
    draw_grid(out, axes);
    out << polyline(axes, values, "stroke='#9ab8d6' stroke-width='1'")
        << polyline(axes, mean, "stroke='#14508c' stroke-width='2'");
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace slideway
