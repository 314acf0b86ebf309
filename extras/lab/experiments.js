// Named experiments: settings to compare, and three texts: the task, the observation, the reason. The figures come from these
// runs. lab.html#experiment=sort opens an experiment, and &run=dot opens one of its runs.

const EXPERIMENTS = {
  sort: {
    title: "Sorting: no mixer, average, dot",
    runs: {
      identity: "task=sort&mixer=identity&more=--steps+200",
      average: "task=sort&mixer=average&more=--steps+200",
      dot: "task=sort&mixer=dot&more=--steps+200",
    },
    told: ["Train three networks: the first without a mixer, the second with an average over all positions, the third with dot-product attention.",
      "After 200 steps dot sorts all test arrays correctly. The average sorts nine of ten, and identity sorts one of eight.",
      "A sorted array depends on the counts of its digits. The average contains these counts. Attention learns them in fewer steps. Identity does not connect the positions, so it cannot learn the task."],
  },
  negation: {
    title: "“not good”: an average with and without a convolution",
    runs: {
      average: "task=reviews&mixer=average&more=--steps+400",
      "average, convolution": "task=reviews&mixer=average&more=--steps+400+--conv-kernel+4",
    },
    told: ["Train a classifier of reviews with an average as mixer. Then train the same network with a convolution over four neighbouring words.",
      "The average classifies about 71 % of the reviews correctly. With the convolution, 97 % are correct after 400 steps.",
      "“not good” differs from “good … not” in the order of two words. An average of all words does not depend on their order. The convolution combines neighbouring words before the average."],
  },
  convolution: {
    title: "Additive attention on a text, with and without a convolution",
    runs: {
      "no convolution": "task=text&dropout=0.4&more=--steps+400+--conv-kernel+0",
      convolution: "task=text&dropout=0.4&more=--steps+400",
    },
    told: ["Train additive attention on the text, first without and then with its convolution over the last four characters.",
      "With the convolution, the final validation loss is 2.36 nats per character. Without the convolution it is 2.47.",
      "In additive attention the weight of a character depends on its key, not on the query. The convolution gives each position the characters before it, and spelling depends mostly on these characters."],
  },
  metric: {
    title: "Metric attention against dot-product attention",
    runs: {
      dot: "task=text&mixer=dot&dropout=0.4&more=--steps+400",
      metric: "task=text&mixer=metric&dropout=0.4&more=--steps+400",
    },
    told: ["Train dot-product attention on the text, then metric attention, and compare their numbers of parameters.",
      "Both reach a validation loss of 2.34 nats per character. The network with dot has 104,000 parameters, and the network with metric has 88,704.",
      "Metric attention has one projection instead of three, and one symmetric matrix per head. This matrix measures the similarity of two positions. On this text the other matrices do not reduce the loss."],
  },
  overfitting: {
    title: "Overfitting, dropout and weight decay",
    runs: {
      plain: "task=text&more=--steps+400",
      "weight decay 4": "task=text&decay=4&more=--steps+400",
      "dropout 0.4": "task=text&dropout=0.4&more=--steps+400",
    },
    told: ["Train on the text three times and compare the validation losses.",
      "In the plain run, the validation loss falls to 2.6 and then rises to 3.6, while the training loss falls to 0.3. With weight decay, the validation loss rises to 2.8. With dropout, it falls to 2.4 and does not rise.",
      "The text has 3,400 characters. The network has more weights than that and memorizes the text. Dropout sets random activations to zero, so a prediction cannot depend on a single activation."],
  },
  head: {
    title: "Switching off one head",
    runs: {dot: "task=sort&more=--steps+150"},
    told: ["Train, and go to “Attention maps”. Choose a head and switch it off. Repeat this for each head.",
      "With one head of the last layer switched off, 99 % of the arrays are still correct. With head 0 of layer 0 switched off, 70 % are correct.",
      "Some heads contribute much more to the output than others. A head with a regular map may contribute little. A map shows which positions a head attends to. It does not show whether the output depends on the head."],
  },
  rate: {
    title: "A learning rate that is too high",
    runs: {
      "rate 0.0005": "task=sort&more=--steps+150",
      "rate 0.1": "task=sort&more=--steps+150+--learning-rate+0.1",
      "rate 1": "task=sort&more=--steps+150+--learning-rate+1",
    },
    told: ["Train with the default learning rate. Then train with 200 times and with 2,000 times this rate.",
      "With the rate 0.0005, 99 % of the arrays are correct after 150 steps. With 0.1, about 15 % are correct. With 1, the loss first rises above 10, and almost no array is correct.",
      "A step follows the gradient, which approximates the loss only near the current weights. A step that is too long ends at weights with a higher loss. Large early steps can leave weights from which the later steps do not recover."],
  },
  muon: {
    title: "Muon against AdamW",
    runs: {
      "AdamW 0.0005": "task=sort&more=--steps+100",
      "Muon 0.0005": "task=sort&optimizer=muon&more=--steps+100",
      "Muon 0.003": "task=sort&optimizer=muon&more=--steps+100+--learning-rate+0.003",
    },
    told: ["Train the sorter with AdamW, with Muon at the same learning rate, and with Muon at six times this rate.",
      "After 100 steps, 99 % of the arrays are correct with AdamW. With Muon, 39 % are correct at the same rate, and all arrays are correct at 0.003.",
      "AdamW scales each weight's update by the past gradients of this weight. Muon makes all singular values of a matrix's update nearly equal. The same learning rate therefore gives steps of different sizes, and each optimizer needs its own rate."],
  },
};

class Experiments {
  // start(address, name, trains): opens a run, and trains it if `trains` is true.
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

  // Opens the experiment in the address. Returns false if the address names none.
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
