// Numbers as text: three significant digits and a unit.

const STEPS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

/** Three significant digits, without exponent. */
export function digits(value) {
  const decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return value.toFixed(decimals);
}

/** [number, prefix] of a value from 0: 1234567 gives ["1.23", "M"]. */
export function scaled(value) {
  if (value < 0.005) return ["0", ""];
  const [step, prefix] = STEPS.find(([step]) => value >= step * 0.9995) ?? STEPS.at(-1);
  return [digits(value / step), prefix];
}

/** A rate in bits per second, such as `6.29 Gbps`. */
export function bits(perSecond) {
  const [number, prefix] = scaled(perSecond);
  return `${number} ${prefix}bps`;
}

/** A rate in frames per second, such as `13.1 Mpps`. */
export function frames(perSecond) {
  const [number, prefix] = scaled(perSecond);
  return `${number} ${prefix}pps`;
}

/** A count with a prefix, such as `13.1 M`. */
export function count(value) {
  if (value < 10_000) return String(Math.round(value));
  const [number, prefix] = scaled(value);
  return `${number} ${prefix}`;
}

/** A share from 0 to 1, such as `62 %`. */
export function percent(share) {
  const value = 100 * share;
  return `${value > 0 && value < 9.95 ? value.toFixed(1) : value.toFixed(0)} %`;
}

/** The least number of 1, 2, 5, 10, 20, 50 ... that is not below a value. */
export function ceiling(value, least) {
  let step = least;
  for (const factors = [2, 2.5, 2]; step < value; ) {
    const factor = factors.shift();
    factors.push(factor);
    step *= factor;
  }
  return step;
}

/** Time of day, from milliseconds since 1970. */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}
