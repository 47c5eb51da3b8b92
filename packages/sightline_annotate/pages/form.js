// The questions of an item: one after the other, a digit answers the current one and goes on to the next.

const words = (name) => name.replaceAll("_", " ");

export class Form {
  constructor(campaign, places, changed) {
    this.campaign = campaign;
    this.changed = changed;
    this.now = 0;
    this.asked = campaign.fields.map((field, index) => this.question(field, index));
    this.remarks = campaign.remarks.map(([name, says]) => this.remark(name, says));
    places.fields.replaceChildren(...this.asked.map((each) => each.element));
    places.remarks.replaceChildren(...this.remarks.map((each) => each.element));
  }

  question(field, index) {
    const element = document.createElement("fieldset");
    element.className = "asks";
    const legend = document.createElement("legend");
    legend.textContent = field.asks;
    const answers = document.createElement("div");
    answers.className = "answers";
    const said = document.createElement("p");
    said.className = "said";
    said.hidden = true;
    const inputs = field.answers.map((answer, number) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      Object.assign(input, { type: "radio", name: field.name, value: answer });
      input.addEventListener("change", () => this.answer(index, answer));
      const face = document.createElement("span");
      const key = document.createElement("kbd");
      key.textContent = number + 1;
      key.setAttribute("aria-hidden", "true");
      face.append(`${words(answer)} `, key);
      label.append(input, face);
      answers.append(label);
      return input;
    });
    element.append(legend, answers, said);
    element.addEventListener("focusin", () => this.go(index));
    return { field, element, inputs, said };
  }

  remark(name, says) {
    const element = document.createElement("label");
    element.className = "remark";
    const title = document.createElement("span");
    title.textContent = says;
    const input = document.createElement("input");
    Object.assign(input, { name, maxLength: 2000 });
    input.addEventListener("input", () => {
      this.fields[name] = input.value;
      this.changed(true);
    });
    const said = document.createElement("span");
    said.className = "said";
    element.append(title, input, said);
    return { name, element, input, said };
  }

  show(fields, disagreement) {
    this.fields = fields;
    for (const { field, element, inputs, said } of this.asked) {
      inputs.forEach((input) => (input.checked = fields[field.name] === input.value));
      element.classList.toggle("differs", Boolean(disagreement?.differing.includes(field.name)));
      this.tell(said, disagreement, (reading) => words(reading[field.name]));
    }
    for (const { name, input, said } of this.remarks) {
      input.value = fields[name] ?? "";
      this.tell(said, disagreement?.differing.includes(name) && disagreement, (reading) => reading[name] || "nothing");
    }
    const open = this.asked.findIndex(({ field }) => !fields[field.name]);
    this.go(open < 0 ? this.asked.length - 1 : open);
  }

  // What two people said, where they differ.
  tell(said, disagreement, saying) {
    said.hidden = !disagreement;
    if (!disagreement) return;
    const [one, other] = disagreement.readings.map(saying);
    const parts = [["one", `one person: ${one}`], ["", " · "], ["other", `another: ${other}`]].map(([name, text]) => {
      const part = document.createElement("span");
      part.className = name;
      part.textContent = text;
      return part;
    });
    said.replaceChildren(...parts);
  }

  go(index) {
    this.now = Math.min(Math.max(index, 0), this.asked.length - 1);
    this.asked.forEach(({ element }, place) => element.classList.toggle("now", place === this.now));
    this.asked[this.now].element.scrollIntoView({ block: "nearest" });
  }

  // Marks the question that was refused, so that the next key is about it.
  look(name) {
    const index = this.asked.findIndex(({ field }) => field.name === name);
    if (index >= 0) this.go(index);
  }

  answer(index, answer) {
    const { field, inputs } = this.asked[index];
    this.fields[field.name] = answer;
    inputs.forEach((input) => (input.checked = input.value === answer));
    this.go(index + 1);
    this.changed();
  }

  // A digit names an answer of the current question.
  digit(number) {
    const { field } = this.asked[this.now];
    if (number >= 1 && number <= field.answers.length) this.answer(this.now, field.answers[number - 1]);
  }

  letter(answer) {
    if (this.asked[this.now].field.answers.includes(answer)) this.answer(this.now, answer);
  }
}
