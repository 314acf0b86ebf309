// Named experiments: settings to compare, and three sentences: the task, the observation, the reason. The figures are those of
// these runs. lab.html#experiment=sort opens one, &run=dot a run of it.

const EXPERIMENTS = {
  sort: {
    title: "Sorting: no mixer, average, dot",
    runs: {
      identity: "task=sort&mixer=identity&more=--steps+200",
      average: "task=sort&mixer=average&more=--steps+200",
      dot: "task=sort&mixer=dot&more=--steps+200",
    },
    told: ["Train three networks: without a mixer, with an average over all positions, and with dot-product attention.",
      "After 200 steps dot has all test arrays right, average nine of ten, and identity one of eight.",
      "A sorted array depends on the counts of its digits. The average contains these counts, attention finds them faster, and identity connects no positions: it cannot learn the task."],
  },
  negation: {
    title: "“not good”: an average with and without a convolution",
    runs: {
      average: "task=reviews&mixer=average&more=--steps+400",
      "average, convolution": "task=reviews&mixer=average&more=--steps+400+--conv-kernel+4",
    },
    told: ["Train a classifier of reviews whose mixer is an average; then the same with a convolution over four neighbouring words.",
      "The average stays near 71 % of the reviews. With the convolution 97 % are right after 400 steps.",
      "“not good” differs from “good … not” in the order of two words. An average of all words has lost their order; the convolution sees neighbours before the average is taken."],
  },
  convolution: {
    title: "Additive attention on a text, with and without a convolution",
    runs: {
      "no convolution": "task=text&dropout=0.4&more=--steps+400+--conv-kernel+0",
      convolution: "task=text&dropout=0.4&more=--steps+400",
    },
    told: ["Train additive attention on the text, without and with its convolution over the last four characters.",
      "With the convolution the held-back loss ends at 2.36 nats a character, without it at 2.47.",
      "Additive attention weights a character by what it is, not by what asks for it. The convolution gives each position its predecessors, which spelling depends on most."],
  },
  metric: {
    title: "Metric attention against dot-product attention",
    runs: {
      dot: "task=text&mixer=dot&dropout=0.4&more=--steps+400",
      metric: "task=text&mixer=metric&dropout=0.4&more=--steps+400",
    },
    told: ["Train dot-product attention on the text, then metric attention, and compare their numbers of parameters.",
      "Both end at 2.34 nats a character on the held-back text: dot with 104,000 parameters, metric with 88,704.",
      "Metric attention has one projection in the place of three and one symmetric matrix a head, which measures how alike two positions are. On this text the other matrices are not needed."],
  },
  overfitting: {
    title: "Overfitting, dropout and weight decay",
    runs: {
      plain: "task=text&more=--steps+400",
      "weight decay 4": "task=text&decay=4&more=--steps+400",
      "dropout 0.4": "task=text&dropout=0.4&more=--steps+400",
    },
    told: ["Train on the text three times and watch the held-back loss.",
      "Without either, the held-back loss falls to 2.6 and rises to 3.6, while the training loss falls to 0.3. With weight decay it rises to 2.8; with dropout it falls to 2.4 and stays there.",
      "The text has 3,400 characters and the network more weights than that: it learns the text by heart. Dropout removes single numbers at random, so that no prediction may rest on one of them."],
  },
  head: {
    title: "A head that is switched off",
    runs: {dot: "task=sort&more=--steps+150"},
    told: ["Train, then open “Attention maps”, choose one head after the other and switch it off.",
      "Without any one head of the last layer 99 % of the arrays stay right; without head 0 of layer 0, 70 % are left.",
      "Heads share the work unevenly, and a regular map may belong to a head that the output does not need. A map shows which positions a head reads, not whether the output depends on it."],
  },
  rate: {
    title: "A learning rate that is too high",
    runs: {
      "rate 0.0005": "task=sort&more=--steps+150",
      "rate 0.1": "task=sort&more=--steps+150+--learning-rate+0.1",
      "rate 1": "task=sort&more=--steps+150+--learning-rate+1",
    },
    told: ["Train with the learning rate of the recipe, then with 200 times and with 2,000 times as much.",
      "At 0.0005, 99 % of the arrays are right after 150 steps. At 0.1 about 15 % are, and at 1 the loss first jumps above 10 and hardly any array is right.",
      "A step follows the gradient, which is right near the weights alone. A step that is too long jumps over the valley and lands where the loss is higher; early steps then destroy what later ones need."],
  },
  muon: {
    title: "Muon against AdamW",
    runs: {
      "AdamW 0.0005": "task=sort&more=--steps+100",
      "Muon 0.0005": "task=sort&optimizer=muon&more=--steps+100",
      "Muon 0.003": "task=sort&optimizer=muon&more=--steps+100+--learning-rate+0.003",
    },
    told: ["Train the sorter with AdamW, with Muon at the same learning rate, and with Muon at six times that rate.",
      "After 100 steps AdamW has 99 % of the arrays right, Muon at the same rate 39 %, and Muon at 0.003 all of them.",
      "AdamW scales each weight by its own past gradients; Muon makes all singular values of a matrix's update equal. The two measure a step differently, so a learning rate of one says nothing about the other."],
  },
};

class Experiments {
  // start(address, name, trains): opens a run.
  constructor(place, start) {
    Object.assign(this, {start});
    this.select = place.querySelector("select");
    this.panel = place.querySelector("div");
    const option = ([value, {title}]) => make("option", {value}, title);
    this.select.append(...Object.entries(EXPERIMENTS).map(option));
    this.select.onchange = () => {
      history.replaceState(null, "", this.select.value ? `#experiment=${this.select.value}` : " ");
      this.open(this.select.value);
    };
  }

  // Whether the address names an experiment, which is opened.
  fromAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1)), name = wanted.get("experiment");
    if (!Object.hasOwn(EXPERIMENTS, name)) return false;
    this.select.value = name;
    this.open(name, wanted.get("run"));
    return true;
  }

  open(name, run) {
    const experiment = EXPERIMENTS[name];
    this.panel.hidden = !experiment;
    if (!experiment) return;
    const {runs, told} = experiment, names = Object.keys(runs), first = names.includes(run) ? run : names[0];
    const sentence = (kind, text) => make("p", {}, make("b", {}, `${kind}: `), text);
    this.buttons = names.map((each) => {
      const button = make("button", {type: "button", "aria-pressed": String(each === first)}, `Train: ${each}`);
      button.onclick = () => {
        for (const one of this.buttons) one.ariaPressed = String(one === button);
        this.start(runs[each], each, true);
      };
      return button;
    });
    this.panel.replaceChildren(...["Do", "See", "Why"].map((kind, i) => sentence(kind, told[i])), make("p", {class: "runs"}, ...this.buttons));
    this.start(runs[first], first, false);
  }
}
