// A curve for a terminal: dots of Braille, two by four to a cell, or letters where there is no Unicode.
//
//   5.48 ⡇
//        ⠘⢄⡀
//   3.21    ⠉⠒⠤⠤⠤⣀⣀
//        1          640
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace heddle::observe {

struct TextChart {
  std::string title;
  std::vector<double> x;  // increasing
  std::vector<double> y;  // values that are not finite leave a gap
  std::function<std::string(double)> y_text;
  int columns = 80, rows = 8;  // size in terminal cells, labels included
  bool unicode = true;
};

/// Lines with their ends; "" without a finite value or room.
std::string text_chart(const TextChart& chart);

}  // namespace heddle::observe
