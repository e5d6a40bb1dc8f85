//! Decodes stored records into the vectors of Arrow columns, in one pass.
//!
//! Whatever needs a decision ends the pass with `None`: the caller's own decoder then reads the records, or names their
//! fault. The layouts are those of `pyrmq_core/protocol/messages/record.py` and `batch.py`.
#![forbid(unsafe_code)]

use std::str;

const MAGIC_V1: i32 = -626_843_481;
const MAGIC_V2: i32 = -626_843_477;
const CRC_MASK: u32 = 0x7fff_ffff;
const COMPRESSED: i32 = 0x1;
const BORN_HOST_V6: i32 = 0x10;
const STORE_HOST_V6: i32 = 0x20;
const BATCH_RECORD: i32 = 0xc0;
/// The least bytes of a message: one inside a batch record, without body and properties.
const MIN_MESSAGE_BYTES: usize = 22;
/// No column has more bytes than four times the records, so that their bounds fit into 32 bits.
const MOST_BYTES: usize = i32::MAX as usize / 4;
const MAX_MS: i64 = i64::MAX / 1000;
const MOST_PAIRS: usize = 64;
const NAME_END: u8 = 1;
const VALUE_END: u8 = 2;

/// The records of one pull, whose messages have offsets from `first` up to, without, `last`.
pub struct Pull<'a> {
    pub records: &'a [u8],
    pub first: i64,
    pub last: i64,
    pub queue_id: i32,
    /// Each offset has to have a message, in order.
    pub is_dense: bool,
    pub allows_batches: bool,
}

pub struct Wants<'a> {
    pub crc: bool,
    pub body: bool,
    pub properties: bool,
    /// The names of RocketMQ's own properties, sorted.
    pub system_names: &'a [Vec<u8>],
}

/// A column of bytes: element i is `octets[bounds[i]..bounds[i + 1]]`.
pub struct Texts {
    pub bounds: Vec<i32>,
    pub octets: Vec<u8>,
    /// A bit for each element, from the first null on; all are set before.
    pub valid: Vec<u8>,
    pub nulls: usize,
}

#[derive(Default)]
pub struct Columns {
    pub queue_id: Vec<i32>,
    pub queue_offset: Vec<i64>,
    pub born_us: Vec<i64>,
    pub store_us: Vec<i64>,
    pub reconsume_times: Vec<i32>,
    /// The one topic of all messages.
    pub topic: Vec<u8>,
    pub msg_id: Texts,
    pub tags: Texts,
    pub keys: Texts,
    pub body: Texts,
    /// The pairs of message i are those from `pair_bounds[i]` up to `pair_bounds[i + 1]`.
    pub pair_bounds: Vec<i32>,
    pub names: Texts,
    pub values: Texts,
}

/// Returns the messages of all pulls that lie in their pull's range, or `None`.
pub fn decode<'a>(pulls: &[Pull<'a>], wants: &'a Wants) -> Option<Columns> {
    let total = pulls.iter().map(|pull| pull.records.len()).sum::<usize>();
    if total > MOST_BYTES {
        return None;
    }
    let offsets =
        pulls.iter().map(|pull| pull.last.saturating_sub(pull.first).max(0) as u64).fold(0, u64::saturating_add);
    let rows = offsets.min((total / MIN_MESSAGE_BYTES) as u64) as usize;
    let columns = Columns::with_capacity(rows, if wants.body { total } else { 0 });
    let mut decoder = Decoder { columns, wants, layout: Vec::with_capacity(MOST_PAIRS), due: 0 };
    for pull in pulls {
        decoder.add(pull)?;
    }
    Some(decoder.columns)
}

/// What a property becomes.
#[derive(Clone, Copy)]
enum Kind {
    Keys,
    Tags,
    MsgId,
    System,
    User,
}

struct Decoder<'a> {
    columns: Columns,
    wants: &'a Wants<'a>,
    /// The names of the last properties by their position, none of them twice.
    layout: Vec<(&'a [u8], Kind)>,
    /// The offset after the last message of the pull.
    due: i64,
}

impl<'a> Decoder<'a> {
    fn add(&mut self, pull: &Pull<'a>) -> Option<()> {
        self.due = pull.first;
        let mut rest = pull.records;
        while !rest.is_empty() {
            let record = Record::split_off(&mut rest)?;
            if record.sys_flag & BATCH_RECORD == BATCH_RECORD {
                self.add_batch(&record, pull)?;
            } else if (pull.first..pull.last).contains(&record.queue_offset) {
                if self.wants.body && record.sys_flag & COMPRESSED != 0 {
                    return None;
                }
                self.check_crc(&record)?;
                self.add_message(&record, record.queue_offset, record.body, record.properties, pull)?;
            }
        }
        (!pull.is_dense || self.due >= pull.last).then_some(())
    }

    fn add_batch(&mut self, record: &Record<'a>, pull: &Pull<'a>) -> Option<()> {
        if !pull.allows_batches || record.sys_flag & COMPRESSED != 0 {
            return None;
        }
        self.check_crc(record)?;
        let mut rest = record.body;
        let mut offset = record.queue_offset;
        while !rest.is_empty() {
            let (body, properties) = split_off_message(&mut rest)?;
            if (pull.first..pull.last).contains(&offset) {
                self.add_message(record, offset, body, properties, pull)?;
            }
            offset = offset.checked_add(1)?;
        }
        Some(())
    }

    fn check_crc(&self, record: &Record) -> Option<()> {
        let is_checked = self.wants.crc && !record.body.is_empty();
        (!is_checked || crc32fast::hash(record.body) & CRC_MASK == record.body_crc).then_some(())
    }

    #[inline]
    fn add_message(
        &mut self,
        record: &Record<'a>,
        offset: i64,
        body: &'a [u8],
        properties: &'a [u8],
        pull: &Pull<'a>,
    ) -> Option<()> {
        if pull.is_dense && offset != self.due {
            return None;
        }
        self.due = offset + 1;
        let columns = &mut self.columns;
        if columns.queue_offset.is_empty() {
            str::from_utf8(record.topic).ok()?;
            columns.topic.extend_from_slice(record.topic);
        } else if record.topic != columns.topic {
            return None;
        }
        columns.queue_id.push(pull.queue_id);
        columns.queue_offset.push(offset);
        columns.born_us.push(microseconds(record.born_ms)?);
        columns.store_us.push(microseconds(record.store_ms)?);
        columns.reconsume_times.push(record.reconsume_times);
        if self.wants.body {
            columns.body.push(body);
        }
        if self.wants.properties { self.add_properties(record, properties) } else { Some(()) }
    }

    #[inline]
    fn add_properties(&mut self, record: &Record, text: &'a [u8]) -> Option<()> {
        if !text.is_ascii() {
            str::from_utf8(text).ok()?;
        }
        let (mut msg_id, mut tags, mut keys) = (None, None, None);
        let mut rest = text;
        let mut number = 0;
        while !rest.is_empty() {
            let (name, kind) = match self.layout.get(number) {
                Some((name, kind)) if split_off_name(&mut rest, name) => (*name, *kind),
                _ => self.learn(number, split_off_part(&mut rest, NAME_END)?)?,
            };
            let value = split_off_part(&mut rest, VALUE_END)?;
            match kind {
                Kind::Keys => keys = Some(value),
                Kind::Tags => tags = Some(value),
                Kind::MsgId => msg_id = Some(value),
                Kind::System => {}
                Kind::User => {
                    self.columns.names.push(name);
                    self.columns.values.push(value);
                }
            }
            number += 1;
        }
        let columns = &mut self.columns;
        columns.tags.push_optional(tags);
        columns.keys.push_optional(keys);
        match msg_id {
            Some(id) => columns.msg_id.push(id),
            None => columns.msg_id.push_hexadecimal(record.store_host, record.log_offset),
        }
        columns.pair_bounds.push(columns.names.len() as i32);
        Some(())
    }

    /// Sets the name at this position of the layout; `None` if it is there already.
    fn learn(&mut self, number: usize, name: &'a [u8]) -> Option<(&'a [u8], Kind)> {
        self.layout.truncate(number);
        if number == MOST_PAIRS || self.layout.iter().any(|(known, _)| *known == name) {
            return None;
        }
        let kind = match name {
            b"KEYS" => Kind::Keys,
            b"TAGS" => Kind::Tags,
            b"UNIQ_KEY" => Kind::MsgId,
            _ if self.wants.system_names.binary_search_by(|known| known.as_slice().cmp(name)).is_ok() => Kind::System,
            _ => Kind::User,
        };
        self.layout.push((name, kind));
        Some((name, kind))
    }
}

/// The parts of a stored record that its messages share, and those of its only message.
struct Record<'a> {
    body_crc: u32,
    queue_offset: i64,
    log_offset: &'a [u8],
    sys_flag: i32,
    born_ms: i64,
    store_ms: i64,
    store_host: &'a [u8],
    reconsume_times: i32,
    body: &'a [u8],
    topic: &'a [u8],
    properties: &'a [u8],
}

impl<'a> Record<'a> {
    #[inline]
    fn split_off(rest: &mut &'a [u8]) -> Option<Self> {
        let mut head = split_off_item(rest)?;
        let magic = int(&mut head)?;
        if magic != MAGIC_V1 && magic != MAGIC_V2 {
            return None;
        }
        let body_crc = int(&mut head)? as u32;
        take(&mut head, 8)?; // queue id and flag
        let queue_offset = long(&mut head)?;
        let log_offset = take(&mut head, 8)?;
        let sys_flag = int(&mut head)?;
        let born_ms = long(&mut head)?;
        take(&mut head, host_bytes(sys_flag & BORN_HOST_V6))?;
        let store_ms = long(&mut head)?;
        let store_host = take(&mut head, host_bytes(sys_flag & STORE_HOST_V6))?;
        let reconsume_times = int(&mut head)?;
        take(&mut head, 8)?; // offset of a prepared transaction
        let body_bytes = int(&mut head)?;
        let body = take(&mut head, usize::try_from(body_bytes).ok()?)?;
        let topic_bytes = if magic == MAGIC_V2 { short(&mut head)? } else { i16::from(byte(&mut head)? as i8) };
        let topic = take(&mut head, usize::try_from(topic_bytes).ok()?)?;
        let property_bytes = short(&mut head)?;
        let properties = take(&mut head, usize::try_from(property_bytes).ok()?)?;
        let record = Record {
            body_crc,
            queue_offset,
            log_offset,
            sys_flag,
            born_ms,
            store_ms,
            store_host,
            reconsume_times,
            body,
            topic,
            properties,
        };
        head.is_empty().then_some(record)
    }
}

/// Splits off the next message of a batch record: its body and its properties.
#[inline]
fn split_off_message<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut item = split_off_item(rest)?;
    take(&mut item, 12)?; // magic, CRC and flag
    let body_bytes = int(&mut item)?;
    let body = take(&mut item, usize::try_from(body_bytes).ok()?)?;
    let property_bytes = short(&mut item)?;
    let properties = take(&mut item, usize::try_from(property_bytes).ok()?)?;
    item.is_empty().then_some((body, properties))
}

/// Splits off an item that begins with its size, and returns what follows the size.
#[inline]
fn split_off_item<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = int(&mut &**rest)?;
    take(rest, usize::try_from(size).ok()?)?.get(4..)
}

/// Splits off this name with its separator, and returns whether it was there.
#[inline]
fn split_off_name(rest: &mut &[u8], name: &[u8]) -> bool {
    match rest.split_at_checked(name.len()) {
        Some((start, [NAME_END, after @ ..])) if start == name => {
            *rest = after;
            true
        }
        _ => false,
    }
}

/// Splits off the text up to a separator, which has to be `end`; the last value may lack it.
#[inline]
fn split_off_part<'a>(rest: &mut &'a [u8], end: u8) -> Option<&'a [u8]> {
    let text = *rest;
    let place = match separator(text) {
        Some(place) if text[place] == end => place,
        None if end == VALUE_END => text.len(),
        _ => return None,
    };
    *rest = text.get(place + 1..).unwrap_or_default();
    (place > 0).then(|| &text[..place])
}

/// Returns the position of the first byte below 3: of the separators 0x01 and 0x02, or of 0x00, which none may have.
#[inline]
fn separator(text: &[u8]) -> Option<usize> {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const LOW: u64 = !HIGH;
    const TO_HIGH: u64 = 0x7d7d_7d7d_7d7d_7d7d; // takes a byte from 3 on, without its highest bit, to that bit
    let (words, rest) = text.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let below = !(((word & LOW) + TO_HIGH) | word) & HIGH;
        if below != 0 {
            return Some(8 * number + below.trailing_zeros() as usize / 8);
        }
    }
    let place = rest.iter().position(|byte| *byte < 3)?;
    Some(text.len() - rest.len() + place)
}

fn host_bytes(is_v6: i32) -> usize {
    if is_v6 == 0 { 8 } else { 20 }
}

fn microseconds(time_ms: i64) -> Option<i64> {
    (-MAX_MS..=MAX_MS).contains(&time_ms).then(|| time_ms * 1000)
}

#[inline]
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (part, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(part)
}

#[inline]
fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (part, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*part)
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    array::<1>(rest).map(|[value]| value)
}

fn short(rest: &mut &[u8]) -> Option<i16> {
    array(rest).map(i16::from_be_bytes)
}

fn int(rest: &mut &[u8]) -> Option<i32> {
    array(rest).map(i32::from_be_bytes)
}

fn long(rest: &mut &[u8]) -> Option<i64> {
    array(rest).map(i64::from_be_bytes)
}

impl Columns {
    fn with_capacity(rows: usize, body_bytes: usize) -> Self {
        let mut pair_bounds = Vec::with_capacity(rows + 1);
        pair_bounds.push(0);
        Columns {
            queue_id: Vec::with_capacity(rows),
            queue_offset: Vec::with_capacity(rows),
            born_us: Vec::with_capacity(rows),
            store_us: Vec::with_capacity(rows),
            reconsume_times: Vec::with_capacity(rows),
            msg_id: Texts::with_capacity(rows, 32 * rows),
            tags: Texts::with_capacity(rows, 8 * rows),
            keys: Texts::with_capacity(rows, 16 * rows),
            body: Texts::with_capacity(rows, body_bytes),
            pair_bounds,
            ..Columns::default()
        }
    }
}

impl Default for Texts {
    fn default() -> Self {
        Texts::with_capacity(0, 0)
    }
}

impl Texts {
    fn with_capacity(rows: usize, octets: usize) -> Self {
        let mut bounds = Vec::with_capacity(rows + 1);
        bounds.push(0);
        Texts { bounds, octets: Vec::with_capacity(octets), valid: Vec::new(), nulls: 0 }
    }

    fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    #[inline]
    fn push(&mut self, text: &[u8]) {
        self.octets.extend_from_slice(text);
        self.bounds.push(self.octets.len() as i32);
    }

    #[inline]
    fn push_optional(&mut self, text: Option<&[u8]>) {
        if text.is_none() || self.nulls > 0 {
            self.mark(text.is_some());
        }
        self.push(text.unwrap_or_default());
    }

    /// Marks the next element as valid or null.
    fn mark(&mut self, is_valid: bool) {
        let row = self.len();
        self.valid.resize(row / 8 + 1, 0xff);
        if !is_valid {
            self.nulls += 1;
            self.valid[row / 8] &= !(1 << (row % 8));
        }
    }

    fn push_hexadecimal(&mut self, host: &[u8], log_offset: &[u8]) {
        for byte in host.iter().chain(log_offset) {
            let digits = [byte >> 4, byte & 15].map(|digit| b"0123456789ABCDEF"[usize::from(digit)]);
            self.octets.extend_from_slice(&digits);
        }
        self.bounds.push(self.octets.len() as i32);
    }
}
