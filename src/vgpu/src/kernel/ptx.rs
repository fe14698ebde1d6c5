//! Reads as much of a PTX text as loading and launching need: the entries with the layout of their
//! parameters, and the variables that have an address. Instructions are skipped but for those of single threads. Pure, and safe
//! against any bytes.

use super::single::Program;
use std::ffi::CString;

/// Parameters of one kernel take at most this much.
const MAX_PARAMETER_BYTES: u32 = 32_764;
/// A body with more words than this is not kept.
const MOST_WORDS: usize = 8192;
/// A variable takes at most this much.
const MAX_VARIABLE_BYTES: u64 = 1 << 47;

/// Where a parameter lies in the buffer of all parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parameter {
    pub(crate) offset: u32,
    pub(crate) size: u32,
}

/// A kernel.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) name: CString,
    pub(crate) parameters: Vec<Parameter>,
    /// Bytes that all parameters take together.
    pub(crate) parameter_bytes: u32,
    /// Threads per block that it was compiled for at most.
    pub(crate) max_threads: Option<u32>,
    /// Registers per thread that it was allowed at most.
    pub(crate) max_registers: Option<u32>,
    /// Static shared memory of a block.
    pub(crate) shared_bytes: u32,
    /// Local memory of a thread.
    pub(crate) local_bytes: u32,
    /// What it computes, if it runs as one thread and all of its instructions are known.
    pub(crate) program: Option<Program>,
}

/// A variable in global or constant memory.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Variable {
    pub(crate) name: CString,
    pub(crate) size: u64,
    pub(crate) constant: bool,
    pub(crate) managed: bool,
}

/// What a text defines.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Ptx {
    pub(crate) entries: Vec<Entry>,
    pub(crate) variables: Vec<Variable>,
    /// Version of the language times ten.
    pub(crate) version: u32,
}

/// A text that is no PTX, or breaks its grammar where it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

type Parsed<T> = Result<T, Malformed>;

/// Whether a text is meant as PTX: its first word is a directive.
pub(crate) fn looks_like_ptx(text: &[u8]) -> bool {
    Words::new(text).next().is_some_and(|word| word.first() == Some(&b'.'))
}

/// Reads a text.
pub(crate) fn parse(text: &[u8]) -> Parsed<Ptx> {
    let mut parser = Parser { words: Words::new(text), ahead: None };
    let mut ptx = Ptx::default();
    let (mut version, mut target, mut shared) = (None, false, 0);
    let mut external = false;
    while let Some(word) = parser.next() {
        match word {
            b".version" => version = Some(parser.version()?),
            b".target" => target = parser.next().is_some_and(is_name),
            b".extern" => {
                external = true;
                continue;
            }
            b".visible" | b".weak" | b".common" => continue,
            b".entry" => {
                if let Some(entry) = parser.entry()?
                    && ptx.entries.iter().all(|known| known.name != entry.name)
                {
                    ptx.entries.push(entry);
                }
            }
            b".global" | b".const" => {
                for variable in parser.variables(word == b".const")? {
                    if !external && ptx.variables.iter().all(|known| known.name != variable.name) {
                        ptx.variables.push(variable);
                    }
                }
            }
            b".shared" => {
                let bytes: u64 = parser.variables(false)?.iter().map(|v| v.size).sum();
                shared = add(shared, bytes)?;
            }
            b".func" => parser.skip_function()?,
            b"{" => parser.skip_block()?,
            b"}" => return Err(Malformed),
            _ => {}
        }
        external = false;
    }
    if !target {
        return Err(Malformed);
    }
    ptx.version = version.ok_or(Malformed)?;
    // Shared variables of the module belong to whichever kernel names them: all may.
    for entry in &mut ptx.entries {
        entry.shared_bytes = add(entry.shared_bytes, shared.into())?;
    }
    Ok(ptx)
}

fn add(sum: u32, bytes: u64) -> Parsed<u32> {
    u32::try_from(bytes).ok().and_then(|bytes| sum.checked_add(bytes)).ok_or(Malformed)
}

fn is_name(word: &[u8]) -> bool {
    word.first().is_some_and(|&b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'$' | b'%'))
}

fn number(word: &[u8]) -> Parsed<u64> {
    let text = std::str::from_utf8(word).map_err(|_| Malformed)?;
    let text = text.trim_end_matches('U');
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(&text[1..], 8),
        None => text.parse(),
    };
    parsed.map_err(|_| Malformed)
}

/// Bytes of a fundamental type, which are its alignment too.
fn width_of(word: &[u8]) -> Option<u64> {
    Some(match word {
        b".u8" | b".s8" | b".b8" => 1,
        b".u16" | b".s16" | b".b16" | b".f16" | b".bf16" | b".e4m3x2" | b".e5m2x2" => 2,
        b".u32" | b".s32" | b".b32" | b".f32" | b".f16x2" | b".bf16x2" | b".tf32" => 4,
        b".u64" | b".s64" | b".b64" | b".f64" | b".texref" | b".samplerref" | b".surfref" => 8,
        b".b128" => 16,
        _ => return None,
    })
}

/// Words of a text without comments: names and numbers, directives, strings, single signs.
struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    fn skip_blanks(&mut self) {
        loop {
            let blank = self.rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
            self.rest = &self.rest[blank..];
            let comment = match self.rest {
                [b'/', b'/', ..] => self.rest.iter().position(|&b| b == b'\n').unwrap_or(self.rest.len()),
                [b'/', b'*', inside @ ..] => {
                    inside.windows(2).position(|w| w == b"*/").map_or(self.rest.len(), |at| at + 4)
                }
                _ => return,
            };
            self.rest = &self.rest[comment..];
        }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.skip_blanks();
        let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'%') || b >= 0x80;
        let len = match *self.rest.first()? {
            b'"' => self.rest[1..].iter().position(|&b| b == b'"').map_or(self.rest.len(), |at| at + 2),
            // `.param.u64` is two directives, `ld.param.u64` one instruction.
            b'.' => 1 + self.rest[1..].iter().take_while(|&&b| inner(b)).count(),
            first if inner(first) => self.rest.iter().take_while(|&&b| inner(b) || b == b'.').count(),
            _ => 1,
        };
        let (word, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(word)
    }
}

/// A declared thing: `.align 8 .b8 name[4]` and its like.
struct Declared<'a> {
    name: &'a [u8],
    align: u64,
    /// Bytes of one element.
    element: u64,
    size: u64,
    managed: bool,
    /// An array whose size its initialiser gives.
    open: Option<u64>,
}

struct Parser<'a> {
    words: Words<'a>,
    ahead: Option<&'a [u8]>,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        self.ahead.take().or_else(|| self.words.next())
    }

    fn must(&mut self) -> Parsed<&'a [u8]> {
        self.next().ok_or(Malformed)
    }

    fn peek(&mut self) -> Option<&'a [u8]> {
        if self.ahead.is_none() {
            self.ahead = self.words.next();
        }
        self.ahead
    }

    fn version(&mut self) -> Parsed<u32> {
        let word = std::str::from_utf8(self.must()?).map_err(|_| Malformed)?;
        let (major, minor) = word.split_once('.').ok_or(Malformed)?;
        let part = |text: &str| text.parse::<u32>().ok().filter(|&n| n < 100).ok_or(Malformed);
        Ok(part(major)? * 10 + part(minor)?)
    }

    /// Skips what an open brace began.
    fn skip_block(&mut self) -> Parsed<()> {
        let mut depth = 1;
        while depth > 0 {
            match self.must()? {
                b"{" => depth += 1,
                b"}" => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn skip_function(&mut self) -> Parsed<()> {
        loop {
            match self.must()? {
                b"{" => return self.skip_block(),
                b";" => return Ok(()),
                _ => {}
            }
        }
    }

    /// Specifiers, type, name and dimensions.
    fn declared(&mut self) -> Parsed<Declared<'a>> {
        let (mut align, mut lanes, mut width, mut managed) = (None, 1, None, false);
        let mut pointee = false;
        let name = loop {
            match self.must()? {
                b".align" => {
                    let given = number(self.must()?)?;
                    if !given.is_power_of_two() || given > 4096 {
                        return Err(Malformed);
                    }
                    // After `.ptr` it speaks of what the parameter points at.
                    if !pointee {
                        align = Some(given);
                    }
                }
                b".ptr" => pointee = true,
                b".v2" => lanes = 2,
                b".v4" => lanes = 4,
                b".v8" => lanes = 8,
                b".attribute" => managed = self.attribute()?,
                word if word.first() == Some(&b'.') => {
                    // Other directives name the state space that a pointer is in.
                    width = width_of(word).or(width);
                }
                word if is_name(word) => break word,
                _ => return Err(Malformed),
            }
        };
        let element = width.ok_or(Malformed)? * lanes;
        let mut declared =
            Declared { name, align: align.unwrap_or(element), element, size: element, managed, open: None };
        self.dimensions(&mut declared)?;
        Ok(declared)
    }

    fn attribute(&mut self) -> Parsed<bool> {
        if self.must()? != b"(" {
            return Err(Malformed);
        }
        let mut managed = false;
        loop {
            match self.must()? {
                b")" => return Ok(managed),
                b".managed" => managed = true,
                b";" | b"{" => return Err(Malformed),
                _ => {}
            }
        }
    }

    fn dimensions(&mut self, declared: &mut Declared<'_>) -> Parsed<()> {
        let mut first = true;
        while self.peek() == Some(b"[") {
            self.next();
            match self.must()? {
                b"]" if first => declared.open = Some(0),
                b"]" => return Err(Malformed),
                count => {
                    let bytes = declared.size.checked_mul(number(count)?);
                    declared.size = bytes.filter(|&b| b <= MAX_VARIABLE_BYTES).ok_or(Malformed)?;
                    if self.must()? != b"]" {
                        return Err(Malformed);
                    }
                }
            }
            first = false;
        }
        if declared.open.is_some() {
            declared.open = Some(std::mem::take(&mut declared.size));
        }
        Ok(())
    }

    /// Variables up to the semicolon; an initialiser only determines the size of an open array.
    fn variables(&mut self, constant: bool) -> Parsed<Vec<Variable>> {
        let mut found = Vec::new();
        let mut declared = self.declared()?;
        loop {
            let sign = self.must()?;
            let sign = if sign == b"=" {
                let elements = self.initialiser()?;
                if let Some(row) = declared.open {
                    declared.size = row.checked_mul(elements).filter(|&b| b <= MAX_VARIABLE_BYTES).ok_or(Malformed)?;
                }
                self.must()?
            } else {
                sign
            };
            let name = CString::new(declared.name).map_err(|_| Malformed)?;
            found.push(Variable { name, size: declared.size, constant, managed: declared.managed });
            match sign {
                b";" => return Ok(found),
                // A further name of the same type.
                b"," => {
                    let name = self.must()?;
                    if !is_name(name) || declared.open.is_some() {
                        return Err(Malformed);
                    }
                    declared.name = name;
                    declared.size = declared.element;
                    self.dimensions(&mut declared)?;
                }
                _ => return Err(Malformed),
            }
        }
    }

    /// Elements of an initialiser, at its outermost level.
    fn initialiser(&mut self) -> Parsed<u64> {
        if self.peek() != Some(b"{") {
            while !matches!(self.peek(), Some(b";" | b",") | None) {
                self.next();
            }
            return Ok(1);
        }
        self.next();
        let (mut depth, mut elements, mut pending) = (1u32, 0, false);
        loop {
            match self.must()? {
                b"{" => depth += 1,
                b"}" => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(elements + u64::from(pending));
                    }
                }
                b"," if depth == 1 => elements += u64::from(std::mem::take(&mut pending)),
                b"," => {}
                b";" => return Err(Malformed),
                _ => pending = true,
            }
        }
    }

    /// An entry; none for a mere declaration.
    fn entry(&mut self) -> Parsed<Option<Entry>> {
        let name = self.must()?;
        if !is_name(name) {
            return Err(Malformed);
        }
        let name = CString::new(name).map_err(|_| Malformed)?;
        let mut entry = Entry {
            name,
            parameters: Vec::new(),
            parameter_bytes: 0,
            max_threads: None,
            max_registers: None,
            shared_bytes: 0,
            local_bytes: 0,
            program: None,
        };
        let mut named = Vec::new();
        if self.peek() == Some(b"(") {
            self.next();
            self.parameters(&mut entry, &mut named)?;
        }
        loop {
            match self.must()? {
                b".maxntid" | b".reqntid" => entry.max_threads = Some(self.product()?),
                b".maxnreg" => entry.max_registers = u32::try_from(number(self.must()?)?).ok(),
                b"{" => break,
                b";" => return Ok(None),
                b"}" => return Err(Malformed),
                _ => {}
            }
        }
        // What the threads of a block do together is not computed.
        let (mut depth, mut body) = (1, (entry.max_threads == Some(1)).then(Vec::new));
        while depth > 0 {
            let word = self.must()?;
            body = body.filter(|words| words.len() < MOST_WORDS && !matches!(word, b".shared" | b".local"));
            match word {
                b"{" => depth += 1,
                b"}" => depth -= 1,
                b".shared" => {
                    for variable in self.variables(false)? {
                        entry.shared_bytes = add(entry.shared_bytes, variable.size)?;
                    }
                }
                b".local" => {
                    for variable in self.variables(false)? {
                        entry.local_bytes = add(entry.local_bytes, variable.size)?;
                    }
                }
                _ => {}
            }
            if let Some(words) = body.as_mut().filter(|_| depth > 0) {
                words.push(word);
            }
        }
        entry.program = body.and_then(|words| Program::of(&words, &named));
        Ok(Some(entry))
    }

    fn product(&mut self) -> Parsed<u32> {
        let mut product = number(self.must()?)?;
        while self.peek() == Some(b",") {
            self.next();
            product = product.checked_mul(number(self.must()?)?).ok_or(Malformed)?;
        }
        u32::try_from(product).map_err(|_| Malformed)
    }

    fn parameters(&mut self, entry: &mut Entry, named: &mut Vec<(&'a [u8], u32)>) -> Parsed<()> {
        loop {
            match self.must()? {
                b")" => return Ok(()),
                b"," => {}
                b".param" => {
                    let declared = self.declared()?;
                    // A kernel's parameter has a size.
                    if declared.open.is_some() || declared.size == 0 {
                        return Err(Malformed);
                    }
                    let offset = u64::from(entry.parameter_bytes).next_multiple_of(declared.align);
                    let end = offset.checked_add(declared.size).ok_or(Malformed)?;
                    if end > u64::from(MAX_PARAMETER_BYTES) {
                        return Err(Malformed);
                    }
                    named.push((declared.name, offset as u32));
                    entry.parameters.push(Parameter { offset: offset as u32, size: declared.size as u32 });
                    entry.parameter_bytes = end as u32;
                }
                _ => return Err(Malformed),
            }
        }
    }
}

#[cfg(test)]
#[path = "ptx_tests.rs"]
mod tests;
