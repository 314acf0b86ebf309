#pragma once

// A small artificial language with an exactly known entropy, used if no text can be downloaded. The loss of a model can
// be compared with this lower bound.
//
// A weighted grammar. `symbol = alternative | alternative`: an alternative may begin with its weight (`3:`, default 1).
// It is chosen with probability weight / sum of weights. `symbol : word word`: a list of equally likely words;
// `list+s`: all words of a list with an appended s. In an alternative, `/` is a line feed, and
//
//   <np>          an expansion of np                      @t   the word kept in register t; @T: the same in capitals
//   <t=thing>     a word of the list, kept in register t  %my  swaps registers m and y
//   <o=name-m-y>  a word other than those in m and y
//
// Each text has exactly one derivation, so the entropy of the text is the entropy of the choices. Proof: split a text
// into tokens; a token is a maximal sequence of letters, or one other character. In every alternative, a word is
// followed by a character that is not a letter, so tokens end at the borders of words. No alternative is empty.
// Alternatives of one symbol begin with different tokens. Therefore the next token decides every choice: the grammar is
// LL(1). Two registers of one list count as different tokens, because they are drawn separately and only swapped.
// tests/tasks/test_corpus.cpp checks these conditions for every rule, and recovers the choices from a text.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace abh::corpus {

// Scenes with three speakers. Dependencies over a long distance: the persons on stage, the previous speaker, the
// carried object (@t), the number of a subject before an adjective or a relative clause, and the rhyme of a couplet.
inline constexpr std::string_view play = R"(
scene = Enter <m=name>, <y=name-m> and <o=name-m-y>, with a <t=thing>.//@M:/<line>/<more><turn>
turn = 9: @Y:/%my<line>/<more><turn> | 4: @O:/%mo%yo<line>/<more><turn> | 1: Exeunt.//
more = 3: <line>/<more> | 2: /
line = 12: <Det> <clause><end> | 3: <Greet> @y, <ask> | 3: <Sub> I <verb> <np> <prep> the <rhyme>
     | 2: I <verb> <np><end> | 2: <Wh> must <np> <verb> <np>? | 1: O <adj> <noun>, <verb> <np>! | 1: Behold the @t, @y!
ask = 3: <verb> <np><end> | 1: where is the @t? | 1: bring @o to <np>. | 1: thy @t is <adj>.
end = 6: . | 4: , <tail>
tail = 4: and <det> <clause>. | 3: <prep> <np>. | 2: or <verb> <np>. | 1: for @o has the @t. | 1: so says @o.
clause = 4: <adj> <subject> | 3: <noun> <does> | 3: <nouns> <do>
subject = 1: <noun> <does> | 1: <nouns> <do>
does = 6: <verbs> <np> | 2: that <verbs> <np> <verbs> <np> | 2: is <adj>
do = 6: <verb> <np> | 2: that <verb> <np> <verb> <np> | 2: are <adj>
np = <det> <object>
object = 5: <adj> <thingy> | 4: <noun> | 3: <nouns>
thingy = 1: <noun> | 1: <nouns>
rhyme = <d=day>,/<Then> <verb> <np> <prep> the <day-d>. | <n=night>,/<Then> <verb> <np> <prep> the <night-n>.
      | <g=gold>,/<Then> <verb> <np> <prep> the <gold-g>. | <r=rain>,/<Then> <verb> <np> <prep> the <rain-r>.
Det : The My Thy His Her Our Your Their No Some
det : the my thy his her our your their no some
Greet : Good Brave Gentle Dear Kind Proud
Sub : When If While Since Though Till
Then : Then Come Go Now Still Yet
Wh : Why How Where
prep : by near under beyond from behind above below against beside
day : day way clay bay hay ray
night : night light fight sight height knight
gold : gold fold hold cold mould scold
rain : rain pain chain grain plain train
name : Rosmund Aldith Corvin Beric Edda Fenn Galt Hilde Ivo Kester Lorna Merrow Nessa Orla Perrin Quill Ragna Sefton
       Tamsin Ulric Vesper Wystan Yara Zeno Anselm Brida Cuth Doran Elow Garrick Isolt Jory
thing : lantern basket candle banner ladder saddle kettle mirror goblet ribbon hammer shovel blanket trumpet pitcher
        dagger
noun : king crown lamp crow ship oath star gate tower bridge sword drum bell well road hill field barn mill song harp
       ring key lock door wall roof stone coin cup jug pot pan spoon knot rope sail oar boat raft net hook owl hawk dove
       wren lark hound horse mare goat lamb ram bull cow hen duck swan frog toad newt moth bee ant worm snail crab eel
       seal bear stag doe hare mole rat cat dog tree root seed rose thorn weed vine oak elm fern reed moon cloud storm
       wind flood frost river lake pond dream ghost grave bone skull hand eye ear heart scar cloak hat glove boot belt
       shield spear arrow bow mask book page pen map guard monk nun cook clerk
nouns : noun+s
adj : old new grey red black white green warm wet dry dark pale bright loud soft slow swift tall small big lean fat thin
      deaf blind dumb lame mad sad glad vain meek wild fair foul rich poor cruel sly wise holy idle noble royal humble
      lost dead sick sore stiff sharp blunt hollow sour sweet bitter rusty dusty rotten rare strange wary
verb : see hear find seek bless curse love fear hide keep hold steal sell lend owe need want trust mock praise shun spurn
       burn drag pull lift raise drop follow greet meet join leave feed tend heal kill mend mark paint carve break bind
       chase hunt haunt know mourn crave claim serve scorn thank test tame
verbs : verb+s
)";

// Part of an alternative.
struct Piece {
  enum Kind { text, expand, recall, swap } kind;
  std::string value;        // text: itself; expand: symbol; recall: register; swap: two registers
  char keep = 0;            // expand: register that stores the word, or 0
  std::string others = "";  // expand: registers whose words are excluded
  bool capitals = false;    // recall
};

struct Alternative {
  double weight = 1;
  std::vector<Piece> pieces;
};

struct Grammar {
  std::map<std::string, std::vector<Alternative>> rules;
  std::map<char, std::string> list_of;  // list of the words of each register
  std::string start;                    // first symbol

  // Error for a symbol without a rule, and for a register that is set in two places.
  explicit Grammar(std::string_view source);
};

inline std::string upper(std::string word) {
  for (char& letter : word) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return word;
}

inline Alternative parse_alternative(std::string_view source) {
  Alternative out;
  const std::size_t digits = source.find_first_not_of("0123456789");
  if (digits != 0 && digits < source.size() && source[digits] == ':') {
    out.weight = std::stod(std::string(source.substr(0, digits)));
    source.remove_prefix(source.find_first_not_of(' ', digits + 1));
  }
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '<') {
      std::string body(source.substr(i + 1, source.find('>', i) - i - 1));
      i += body.size() + 1;  // before body is shortened
      Piece piece{Piece::expand, ""};
      if (body[1] == '=') {
        piece.keep = body[0];
        body.erase(0, 2);
      }
      const std::size_t minus = std::min(body.find('-'), body.size());
      for (std::size_t k = minus + 1; k < body.size(); k += 2) piece.others += body[k];
      piece.value = body.substr(0, minus);
      out.pieces.push_back(piece);
    } else if (source[i] == '@') {
      const char name = source[++i];
      out.pieces.push_back({Piece::recall, {static_cast<char>(std::tolower(name))}, 0, "", std::isupper(name) != 0});
    } else if (source[i] == '%') {
      out.pieces.push_back({Piece::swap, std::string(source.substr(i + 1, 2))});
      i += 2;
    } else {
      if (out.pieces.empty() || out.pieces.back().kind != Piece::text) out.pieces.push_back({Piece::text, ""});
      out.pieces.back().value += source[i] == '/' ? '\n' : source[i];
    }
  }
  return out;
}

inline Grammar::Grammar(std::string_view source) {
  std::istringstream lines{std::string(source)};
  std::string line, symbol;
  bool is_list = false;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word;
    if (!line.empty() && line[0] != ' ') {
      words >> symbol >> word;
      is_list = word == ":";
      if (start.empty()) start = symbol;
    }
    std::vector<Alternative>& alternatives = rules[symbol];
    std::string alternative;
    const auto add = [&] {
      if (!alternative.empty()) alternatives.push_back(parse_alternative(alternative));
      alternative.clear();
    };
    while (words >> word) {
      const std::size_t plus = word.find('+');
      if (!is_list && word == "|") {
        add();
      } else if (!is_list) {
        alternative += (alternative.empty() ? "" : " ") + word;
      } else if (plus == std::string::npos) {
        alternatives.push_back(parse_alternative(word));
      } else {
        for (Alternative item : rules.at(word.substr(0, plus))) {
          item.pieces[0].value += word.substr(plus + 1);
          alternatives.push_back(item);
        }
      }
    }
    add();
  }
  rules.erase("");  // the empty line before the first rule
  for (const auto& [name, alternatives] : rules) {
    for (const Alternative& alternative : alternatives) {
      for (const Piece& piece : alternative.pieces) {
        if (piece.kind != Piece::expand) continue;
        if (!rules.contains(piece.value)) throw Error("grammar: " + name + " uses the unknown symbol " + piece.value);
        if (piece.keep && !list_of.emplace(piece.keep, piece.value).second) {
          throw Error(std::string("grammar: register ") + piece.keep + " is filled in two places");
        }
      }
    }
  }
}

using Registers = std::map<char, std::string>;

// Word of the register of a piece.
inline std::string recalled(const Piece& piece, const Registers& registers) {
  const std::string& word = registers.at(piece.value[0]);
  return piece.capitals ? upper(word) : word;
}

// Alternatives of an expansion that its registers do not exclude, and the sum of their weights.
inline std::pair<std::vector<const Alternative*>, double> open_alternatives(const Grammar& grammar, const Piece& piece,
                                                                            const Registers& registers) {
  std::pair<std::vector<const Alternative*>, double> out{{}, 0};
  for (const Alternative& alternative : grammar.rules.at(piece.value)) {
    bool taken = false;
    for (const char other : piece.others) taken |= registers.at(other) == alternative.pieces[0].value;
    if (taken) continue;
    out.first.push_back(&alternative);
    out.second += alternative.weight;
  }
  return out;
}

// Draws texts. They are the same on every machine, because choices depend only on integers and exact sums.
class Writer {
 public:
  Writer(const Grammar& grammar, std::uint64_t seed) : grammar_(grammar), seed_(seed) {}

  // Appends one expansion of the start symbol to text().
  void write() { expand({Piece::expand, grammar_.start}); }
  const std::string& text() const { return text_; }
  // Sum of -ln p over all choices so far.
  double nats() const { return nats_; }

 private:
  void expand(const Piece& piece) {
    const auto [open, total] = open_alternatives(grammar_, piece, registers_);
    // A 32-bit word scaled to 0 .. total - 1; the error of the probabilities is below 1 in 10^7.
    double left = static_cast<double>((philox_word(seed_, drawn_++, 0, 0) * static_cast<std::uint64_t>(total)) >> 32);
    std::size_t chosen = 0;
    while (left >= open[chosen]->weight) left -= open[chosen++]->weight;
    nats_ += std::log(total / open[chosen]->weight);
    for (const Piece& part : open[chosen]->pieces) {
      if (part.kind == Piece::text) text_ += part.value;
      if (part.kind == Piece::expand) expand(part);
      if (part.kind == Piece::swap) std::swap(registers_[part.value[0]], registers_[part.value[1]]);
      if (part.kind == Piece::recall) text_ += recalled(part, registers_);
    }
    if (piece.keep) registers_[piece.keep] = open[chosen]->pieces[0].value;
  }

  const Grammar& grammar_;
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
  double nats_ = 0;
  std::string text_;
  Registers registers_;
};

struct Expectation {
  double nats = 0;
  double characters = 0;
};

// Expected entropy and length of one text of the start symbol. Their quotient is the entropy rate of concatenated
// texts, which are independent and identically distributed. For a symbol s with alternatives a of probability p_a,
//   nats(s) = sum_a p_a (-ln p_a + sum of nats over a's expansions),   characters(s) = sum_a p_a * (sum over a's
//   pieces),
// solved by iteration, because `turn` and `more` are recursive. A word without those in k registers is one of n - k
// equally likely words. A recalled word has the mean length of its list. All words of a list have the same probability,
// and swaps do not depend on the words, so each register contains each word with the same probability.
inline Expectation expectation(const Grammar& grammar) {
  std::map<std::string, Expectation> of;
  for (double change = 1; change > 0;) {
    change = 0;
    for (const auto& [symbol, alternatives] : grammar.rules) {
      double total = 0;
      for (const Alternative& alternative : alternatives) total += alternative.weight;
      Expectation sum;
      for (const Alternative& alternative : alternatives) {
        Expectation one{std::log(total / alternative.weight), 0};
        for (const Piece& piece : alternative.pieces) {
          if (piece.kind == Piece::text) one.characters += static_cast<double>(piece.value.size());
          if (piece.kind == Piece::recall) one.characters += of[grammar.list_of.at(piece.value[0])].characters;
          if (piece.kind == Piece::expand) {
            const double n = static_cast<double>(grammar.rules.at(piece.value).size());
            one.characters += of[piece.value].characters;
            one.nats +=
                piece.others.empty() ? of[piece.value].nats : std::log(n - static_cast<double>(piece.others.size()));
          }
        }
        sum.nats += alternative.weight / total * one.nats;
        sum.characters += alternative.weight / total * one.characters;
      }
      change =
          std::max(change, std::abs(sum.characters - of[symbol].characters) + std::abs(sum.nats - of[symbol].nats));
      of[symbol] = sum;
    }
    // Rounding can change the last bits forever.
    if (change < 1e-11) change = 0;
  }
  return of[grammar.start];
}

}  // namespace abh::corpus
