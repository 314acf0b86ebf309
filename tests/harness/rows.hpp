#pragma once

// Rows that the tests of features add to the lists of the core's tests, before any test runs:
//
//     const Rows<NetworkCase> networks([] { return std::vector{network_case("leap")}; });
//     const Rows<WeightOrder> weights = {{"leap", "norm_weight_d query_dd"}};
//
// A test of the core takes its own rows with theirs: Rows<NetworkCase>::all({network_case("dot")}). Lists of the same
// type differ in a tag.

#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

namespace abh {

template <class Row, class Tag = void>
class Rows {
 public:
  using List = std::function<std::vector<Row>()>;
  explicit Rows(List list) { lists().push_back(std::move(list)); }
  Rows(std::initializer_list<Row> rows) : Rows(List([all = std::vector<Row>(rows)] { return all; })) {}

  static std::vector<Row> all(std::vector<Row> rows = {}) {
    for (const List& list : lists()) {
      for (const Row& row : list()) rows.push_back(row);
    }
    return rows;
  }

 private:
  static std::vector<List>& lists() {
    static std::vector<List> of_features;
    return of_features;
  }
};

}  // namespace abh
