//! Kernels of a single thread whose PTX is there, such as those by which a loop that XLA compiled counts and decides whether
//! it goes on. They are computed if every instruction is known here; all others, and all kernels of more threads, do nothing.
//! Pure: memory is reached through the caller.

use std::collections::HashMap;

/// A kernel with more instructions than this, or one that runs more, is not computed.
const MOST_INSTRUCTIONS: usize = 1024;
const MOST_STEPS: usize = 65_536;

/// What a register or an instruction holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Type {
    Predicate,
    /// Bits, unsigned, signed; bytes of each.
    Bits(u32),
    Unsigned(u32),
    Signed(u32),
    Single,
    Double,
}

impl Type {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "pred" => Self::Predicate,
            "f32" => Self::Single,
            "f64" => Self::Double,
            _ => {
                let bytes = match &name[1..] {
                    "8" => 1,
                    "16" => 2,
                    "32" => 4,
                    "64" => 8,
                    _ => return None,
                };
                match &name[..1] {
                    "b" => Self::Bits(bytes),
                    "u" => Self::Unsigned(bytes),
                    "s" => Self::Signed(bytes),
                    _ => return None,
                }
            }
        })
    }

    fn bytes(self) -> u32 {
        match self {
            Self::Predicate => 1,
            Self::Bits(bytes) | Self::Unsigned(bytes) | Self::Signed(bytes) => bytes,
            Self::Single => 4,
            Self::Double => 8,
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Self::Single | Self::Double)
    }

    /// The bits that a value of this type has.
    fn cut(self, value: u64) -> u64 {
        match self.bytes() {
            8 => value,
            bytes => value & ((1 << (8 * bytes)) - 1),
        }
    }

    /// As a number, whole.
    fn whole(self, value: u64) -> i128 {
        let value = self.cut(value);
        match (self, self.bytes()) {
            (Self::Signed(_), 1) => (value as i8).into(),
            (Self::Signed(_), 2) => (value as i16).into(),
            (Self::Signed(_), 4) => (value as i32).into(),
            (Self::Signed(_), _) => (value as i64).into(),
            _ => value.into(),
        }
    }

    fn float(self, value: u64) -> f64 {
        if self == Self::Single { f32::from_bits(value as u32).into() } else { f64::from_bits(value) }
    }

    fn of_float(self, value: f64) -> u64 {
        if self == Self::Single { u64::from((value as f32).to_bits()) } else { value.to_bits() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operand {
    Register(usize),
    Value(u64),
}

/// A place in memory: parameters by offset, all else by address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Parameter(u64),
    Memory(Operand, i64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Add,
    Sub,
    Mul,
    /// Factors of half the result's width.
    MulWide,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Load(Type, usize, Place),
    Store(Type, Place, Operand),
    Move(Type, usize, Operand),
    Not(Type, usize, Operand),
    Negate(Type, usize, Operand),
    Two(Op, Type, usize, [Operand; 2]),
    /// The product of two and a third added; true: of factors of half the width.
    MulAdd(bool, Type, usize, [Operand; 3]),
    /// `true`: also where one is not a number.
    Compare(Comparison, bool, Type, usize, [Operand; 2]),
    Select(Type, usize, [Operand; 3]),
    Convert(Type, Type, usize, Operand),
    Jump(usize),
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    /// Only where this predicate is true, or false.
    guard: Option<(usize, bool)>,
    action: Action,
}

/// A kernel that can be computed.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Program {
    steps: Vec<Step>,
    registers: usize,
}

/// The memory of a launch.
pub(crate) trait Memory {
    /// The bytes at an address, zero-extended; none: it is not the kernel's.
    fn load(&mut self, at: u64, bytes: u32) -> Option<u64>;
    /// Stores them, once the kernel is over.
    fn store(&mut self, at: u64, bytes: u32, value: u64) -> Option<()>;
}

impl Program {
    /// Reads the words between the braces of a kernel, whose parameters lie at offsets; none where it cannot be computed.
    pub(super) fn of(words: &[&[u8]], parameters: &[(&[u8], u32)]) -> Option<Self> {
        let words: Vec<&str> = words.iter().map(|word| std::str::from_utf8(word).ok()).collect::<Option<_>>()?;
        let mut reader = Reader { parameters, registers: HashMap::new(), labels: HashMap::new(), jumps: Vec::new() };
        let mut steps = Vec::new();
        let mut rest = words.as_slice();
        while let Some(first) = rest.first() {
            if let [label, ":", ..] = rest {
                reader.labels.insert((*label).to_owned(), steps.len());
                rest = &rest[2..];
                continue;
            }
            let end = rest.iter().position(|word| *word == ";")?;
            if *first != ".reg" && *first != ".pragma" {
                steps.push(reader.step(&rest[..end], steps.len())?);
            }
            rest = &rest[end + 1..];
        }
        if steps.len() > MOST_INSTRUCTIONS {
            return None;
        }
        for (at, label) in reader.jumps {
            steps.get_mut(at)?.action = Action::Jump(*reader.labels.get(&label)?);
        }
        Some(Self { steps, registers: reader.registers.len() })
    }

    /// Runs it. None: it reached what is not its own, or went on for too long; then nothing may be stored.
    pub(super) fn run(&self, arguments: &[u8], memory: &mut impl Memory) -> Option<()> {
        let mut registers = vec![0u64; self.registers];
        let mut at = 0;
        for _ in 0..MOST_STEPS {
            let Some(step) = self.steps.get(at) else { return Some(()) };
            at += 1;
            if step.guard.is_some_and(|(register, wanted)| (registers[register] & 1 == 1) != wanted) {
                continue;
            }
            let of = |operand: Operand| match operand {
                Operand::Register(register) => registers[register],
                Operand::Value(value) => value,
            };
            let (to, value) = match step.action {
                Action::Load(kind, to, Place::Parameter(offset)) => {
                    let bytes = arguments.get(offset as usize..)?.get(..kind.bytes() as usize)?;
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    (to, widen(kind, u64::from_le_bytes(word)))
                }
                Action::Load(kind, to, Place::Memory(base, offset)) => {
                    (to, widen(kind, memory.load(of(base).wrapping_add_signed(offset), kind.bytes())?))
                }
                Action::Store(kind, Place::Memory(base, offset), value) => {
                    memory.store(of(base).wrapping_add_signed(offset), kind.bytes(), kind.cut(of(value)))?;
                    continue;
                }
                Action::Store(_, Place::Parameter(_), _) => return None,
                Action::Move(kind, to, value) => (to, kind.cut(of(value))),
                Action::Not(Type::Predicate, to, value) => (to, of(value) & 1 ^ 1),
                Action::Not(kind, to, value) => (to, kind.cut(!of(value))),
                Action::Negate(kind, to, value) if kind.is_float() => (to, kind.of_float(-kind.float(of(value)))),
                Action::Negate(kind, to, value) => (to, kind.cut(of(value).wrapping_neg())),
                Action::Two(op, kind, to, [a, b]) => (to, two(op, kind, of(a), of(b))?),
                Action::MulAdd(wide, kind, to, [a, b, c]) => {
                    let product = two(if wide { Op::MulWide } else { Op::Mul }, kind, of(a), of(b))?;
                    let sum = if wide { twice(kind)? } else { kind };
                    (to, two(Op::Add, sum, product, of(c))?)
                }
                Action::Compare(comparison, unordered, kind, to, [a, b]) => {
                    (to, compare(comparison, unordered, kind, of(a), of(b)).into())
                }
                Action::Select(kind, to, [a, b, which]) => {
                    (to, kind.cut(if of(which) & 1 == 1 { of(a) } else { of(b) }))
                }
                Action::Convert(into, from, to, value) => (to, convert(into, from, of(value))),
                Action::Jump(label) => {
                    at = label;
                    continue;
                }
                Action::End => return Some(()),
            };
            registers[to] = value;
        }
        None
    }
}

/// Signed numbers keep their sign in a wider register.
fn widen(kind: Type, value: u64) -> u64 {
    if matches!(kind, Type::Signed(_)) { kind.whole(value) as u64 } else { kind.cut(value) }
}

fn twice(kind: Type) -> Option<Type> {
    Some(match kind {
        Type::Unsigned(bytes @ ..=4) => Type::Unsigned(2 * bytes),
        Type::Signed(bytes @ ..=4) => Type::Signed(2 * bytes),
        _ => return None,
    })
}

fn two(op: Op, kind: Type, a: u64, b: u64) -> Option<u64> {
    if kind.is_float() {
        let (a, b) = (kind.float(a), kind.float(b));
        return Some(kind.of_float(match op {
            Op::Add => a + b,
            Op::Sub => a - b,
            Op::Mul => a * b,
            Op::Div => a / b,
            Op::Min => a.min(b),
            Op::Max => a.max(b),
            _ => return None,
        }));
    }
    let bits = u64::from(8 * kind.bytes());
    let (x, y) = (kind.whole(a), kind.whole(b));
    let value = match op {
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => (x as i64).wrapping_mul(y as i64).into(),
        Op::MulWide => return Some(twice(kind)?.cut((x * y) as u64)),
        Op::Div => x.checked_div(y)?,
        Op::Rem => x.checked_rem(y)?,
        Op::Min => x.min(y),
        Op::Max => x.max(y),
        Op::And => x & y,
        Op::Or => x | y,
        Op::Xor => x ^ y,
        // A shift by more than all bits shifts all of them out; the distance is unsigned.
        Op::Shl if b >= bits => 0,
        Op::Shl => i128::from(kind.cut(a)) << b,
        Op::Shr => x >> b.min(bits),
    };
    Some(kind.cut(value as u64))
}

fn compare(comparison: Comparison, unordered: bool, kind: Type, a: u64, b: u64) -> bool {
    let order = if kind.is_float() {
        kind.float(a).partial_cmp(&kind.float(b))
    } else {
        Some(kind.whole(a).cmp(&kind.whole(b)))
    };
    order.map_or(unordered, |order| match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    })
}

fn convert(into: Type, from: Type, value: u64) -> u64 {
    match (into.is_float(), from.is_float()) {
        (true, true) => into.of_float(from.float(value)),
        (true, false) => into.of_float(from.whole(value) as f64),
        (false, true) => {
            let value = from.float(value).trunc();
            into.cut(if matches!(into, Type::Signed(_)) { value as i64 as u64 } else { value as u64 })
        }
        (false, false) => into.cut(from.whole(value) as u64),
    }
}

struct Reader<'a> {
    parameters: &'a [(&'a [u8], u32)],
    registers: HashMap<String, usize>,
    labels: HashMap<String, usize>,
    /// Steps that jump, and where to.
    jumps: Vec<(usize, String)>,
}

impl Reader<'_> {
    fn register(&mut self, name: &str) -> Option<usize> {
        // A dot parts the name of a special register (`%tid.x`).
        if !name.starts_with('%') || name.contains('.') {
            return None;
        }
        let next = self.registers.len();
        Some(*self.registers.entry(name.to_owned()).or_insert(next))
    }

    fn operand(&mut self, words: &[&str]) -> Option<Operand> {
        Some(match words {
            // One thread of one block.
            ["%tid.x" | "%tid.y" | "%tid.z" | "%ctaid.x" | "%ctaid.y" | "%ctaid.z"] => Operand::Value(0),
            ["%ntid.x" | "%ntid.y" | "%ntid.z" | "%nctaid.x" | "%nctaid.y" | "%nctaid.z"] => Operand::Value(1),
            [name] if name.starts_with('%') => Operand::Register(self.register(name)?),
            [number] => Operand::Value(literal(number)?),
            ["-", number] => Operand::Value(literal(number)?.wrapping_neg()),
            _ => return None,
        })
    }

    /// `[%rd1+4]`, `[name]`.
    fn place(&mut self, words: &[&str]) -> Option<Place> {
        let ["[", base, offset @ .., "]"] = words else { return None };
        let offset = match offset {
            [] => 0,
            ["+", number] => literal(number)? as i64,
            ["+", "-", number] | ["-", number] => (literal(number)? as i64).checked_neg()?,
            _ => return None,
        };
        if base.starts_with('%') {
            return Some(Place::Memory(Operand::Register(self.register(base)?), offset));
        }
        let (_, start) = self.parameters.iter().find(|(name, _)| *name == base.as_bytes())?;
        Some(Place::Parameter(u64::from(*start).checked_add_signed(offset)?))
    }

    fn step(&mut self, words: &[&str], at: usize) -> Option<Step> {
        let (guard, words) = match words {
            ["@", "!", predicate, rest @ ..] => (Some((self.register(predicate)?, false)), rest),
            ["@", predicate, rest @ ..] => (Some((self.register(predicate)?, true)), rest),
            _ => (None, words),
        };
        let (name, operands) = words.split_first()?;
        let parts: Vec<&str> = name.split('.').collect();
        let operands: Vec<&[&str]> = operands.split(|word| *word == ",").collect();
        Some(Step { guard, action: self.action(&parts, &operands, at)? })
    }

    fn action(&mut self, name: &[&str], operands: &[&[&str]], at: usize) -> Option<Action> {
        let kind = || Type::named(name.last()?);
        Some(match (name, operands) {
            (["ret" | "exit"], _) => Action::End,
            (["bra"] | ["bra", "uni"], [[label]]) => {
                self.jumps.push((at, (*label).to_owned()));
                Action::Jump(at)
            }
            (["ld", "param", _], [to, from]) => {
                let Place::Parameter(offset) = self.place(from)? else { return None };
                Action::Load(kind()?, self.to(to)?, Place::Parameter(offset))
            }
            (["ld", "global", _] | ["ld", "global", "nc", _], [to, from]) => {
                let from = self.memory(from)?;
                Action::Load(kind()?, self.to(to)?, from)
            }
            (["st", "global", _], [to, from]) => {
                let to = self.memory(to)?;
                Action::Store(kind()?, to, self.operand(from)?)
            }
            (["mov", _] | ["cvta", "to", "global", _] | ["cvta", "global", _], [to, from]) => {
                Action::Move(kind()?, self.to(to)?, self.operand(from)?)
            }
            (["not", _], [to, from]) => Action::Not(kind()?, self.to(to)?, self.operand(from)?),
            (["neg", .., _], [to, from]) => Action::Negate(kind()?, self.to(to)?, self.operand(from)?),
            (["selp", _], [to, a, b, which]) => {
                Action::Select(kind()?, self.to(to)?, [self.operand(a)?, self.operand(b)?, self.operand(which)?])
            }
            (["setp", comparison, modes @ .., _], [to, a, b]) if modes.iter().all(|mode| *mode == "ftz") => {
                let (comparison, unordered) = compared(comparison)?;
                Action::Compare(comparison, unordered, kind()?, self.to(to)?, [self.operand(a)?, self.operand(b)?])
            }
            (["cvt", modes @ .., into, from], [to, value]) if modes.iter().all(|mode| rounds(mode)) => {
                let (into, from) = (Type::named(into)?, Type::named(from)?);
                if !into.is_float() && from.is_float() && !modes.contains(&"rzi") {
                    return None;
                }
                Action::Convert(into, from, self.to(to)?, self.operand(value)?)
            }
            (["mad", "lo", _] | ["fma", "rn", .., _], [to, a, b, c]) => self.mul_add(false, kind()?, to, [a, b, c])?,
            (["mad", "wide", _], [to, a, b, c]) => self.mul_add(true, kind()?, to, [a, b, c])?,
            ([op, modes @ .., _], [to, a, b]) => {
                let op = match (*op, modes) {
                    ("mul", ["wide"]) => Op::MulWide,
                    ("mul", ["lo"]) => Op::Mul,
                    (op, modes) if modes.iter().all(|mode| rounds(mode)) => arithmetic(op, kind()?)?,
                    _ => return None,
                };
                Action::Two(op, kind()?, self.to(to)?, [self.operand(a)?, self.operand(b)?])
            }
            _ => return None,
        })
    }

    fn mul_add(&mut self, wide: bool, kind: Type, to: &[&str], [a, b, c]: [&[&str]; 3]) -> Option<Action> {
        Some(Action::MulAdd(wide, kind, self.to(to)?, [self.operand(a)?, self.operand(b)?, self.operand(c)?]))
    }

    fn to(&mut self, words: &[&str]) -> Option<usize> {
        let [name] = words else { return None };
        self.register(name)
    }

    fn memory(&mut self, words: &[&str]) -> Option<Place> {
        self.place(words).filter(|place| matches!(place, Place::Memory(..)))
    }
}

/// How a result is rounded; exact enough for numbers that decide something.
fn rounds(mode: &str) -> bool {
    matches!(mode, "rn" | "rz" | "rzi" | "ftz" | "full" | "approx")
}

fn arithmetic(op: &str, kind: Type) -> Option<Op> {
    let op = match op {
        "add" => Op::Add,
        "sub" => Op::Sub,
        "mul" if kind.is_float() => Op::Mul,
        "div" => Op::Div,
        "rem" => Op::Rem,
        "min" => Op::Min,
        "max" => Op::Max,
        "and" => Op::And,
        "or" => Op::Or,
        "xor" => Op::Xor,
        "shl" => Op::Shl,
        "shr" => Op::Shr,
        _ => return None,
    };
    Some(op)
}

/// The second: whether it holds where one is not a number.
fn compared(name: &str) -> Option<(Comparison, bool)> {
    Some(match name {
        "eq" => (Comparison::Equal, false),
        "equ" => (Comparison::Equal, true),
        "ne" => (Comparison::NotEqual, false),
        "neu" => (Comparison::NotEqual, true),
        "lt" | "lo" => (Comparison::Less, false),
        "ltu" => (Comparison::Less, true),
        "le" | "ls" => (Comparison::LessOrEqual, false),
        "leu" => (Comparison::LessOrEqual, true),
        "gt" | "hi" => (Comparison::Greater, false),
        "gtu" => (Comparison::Greater, true),
        "ge" | "hs" => (Comparison::GreaterOrEqual, false),
        "geu" => (Comparison::GreaterOrEqual, true),
        _ => return None,
    })
}

/// `64`, `0x40`, `0f3F800000`, `0d3FF0000000000000`.
fn literal(word: &str) -> Option<u64> {
    let word = word.strip_suffix('U').unwrap_or(word);
    match word.get(..2) {
        Some("0f" | "0F" | "0d" | "0D" | "0x" | "0X") => u64::from_str_radix(&word[2..], 16).ok(),
        _ => word.parse().ok(),
    }
}

#[cfg(test)]
#[path = "single_tests.rs"]
mod tests;
