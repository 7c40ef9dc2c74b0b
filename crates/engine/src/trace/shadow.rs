//! Shadow ports: a trace forwards between them instead of the real ports.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use port::trace::{DeliveryLog, TraceReceive, TracedDelivery};

use crate::counters::CounterBlock;
use crate::port::{Arrival, Port, counter};

/// Counters of shadow ports. They are made once and used by one trace after the other, since a
/// block is never freed.
static BLOCKS: Mutex<Vec<CounterBlock>> = Mutex::new(Vec::new());

/// The ports of a trace, each with the real port that it stands for.
pub(super) struct Shadows {
    blocks: MutexGuard<'static, Vec<CounterBlock>>,
    log: DeliveryLog,
    ports: Vec<(Arc<Port>, Arc<Port>)>,
    /// Number of a shadow port, by the address of the real one.
    numbers: HashMap<*const Port, usize>,
}

impl Shadows {
    /// Waits until no other trace runs.
    pub(super) fn begin() -> Shadows {
        let blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let (log, ports, numbers) = Default::default();
        Shadows { blocks, log, ports, numbers }
    }

    /// Shadow port of a real one. It receives if frames for the real one would not be lost.
    pub(super) fn of(&mut self, real: &Arc<Port>) -> Arc<Port> {
        let number = *self.numbers.entry(Arc::as_ptr(real)).or_insert(self.ports.len());
        if let Some((_, shadow)) = self.ports.get(number) {
            return shadow.clone();
        }
        let shadow = Arc::new(real.shadow(block(&mut self.blocks, number)));
        let parks = match real.arrival() {
            Arrival::Delivered => Some(false),
            Arrival::Waits => Some(true),
            Arrival::Lost => None,
        };
        if let Some(parks) = parks {
            let receive = TraceReceive::new(number, parks, self.log.clone());
            shadow.attach_receive(0, Box::new(receive));
        }
        self.ports.push((real.clone(), shadow.clone()));
        shadow
    }

    /// The shadow port with this number.
    pub(super) fn shadow(&self, number: usize) -> &Port {
        &self.ports[number].1
    }

    /// All shadow ports.
    pub(super) fn all(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().map(|(_, shadow)| &**shadow)
    }

    /// Takes the deliveries, each with its real port.
    pub(super) fn deliveries(&self) -> Vec<(Arc<Port>, TracedDelivery)> {
        let all = self.log.take().into_iter();
        all.map(|delivered| (self.ports[delivered.port].0.clone(), delivered)).collect()
    }
}

/// Block of zeros for a shadow port.
fn block(blocks: &mut Vec<CounterBlock>, number: usize) -> CounterBlock {
    while blocks.len() <= number {
        let words: Vec<_> = (0..counter::END).map(|_| 0.into()).collect();
        blocks.push(CounterBlock::new(words.leak()));
    }
    (0..counter::END).for_each(|word| blocks[number].set(word, 0));
    blocks[number]
}
