//! The buffers of one inference of three networks, as a simple runtime allocates them: the output of a layer when the layer
//! runs. It is freed after the last layer that reads it. Biases, normalisation after convolutions, and activations are in
//! place. The batch size is 1; elements are 32-bit floats.

/// One step of an inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Allocates a block: its number, and its length in floats.
    Alloc(usize, usize),
    /// Frees the block with this number.
    Free(usize),
}

/// The outputs of the layers: the length of each, and the numbers of the outputs that the layer reads.
#[derive(Debug, Default)]
struct Network {
    layers: Vec<(usize, Vec<usize>)>,
}

impl Network {
    fn add(&mut self, floats: usize, inputs: &[usize]) -> usize {
        self.layers.push((floats, inputs.to_vec()));
        self.layers.len() - 1
    }

    fn last_use(&self, layer: usize) -> usize {
        let reads = |(_, (_, inputs)): &(usize, &(usize, Vec<usize>))| inputs.contains(&layer);
        self.layers.iter().enumerate().rev().find(reads).map_or(usize::MAX, |(n, _)| n)
    }

    fn steps(&self) -> Vec<Step> {
        let last: Vec<usize> = (0..self.layers.len()).map(|layer| self.last_use(layer)).collect();
        let mut steps = Vec::new();
        for (now, (floats, _)) in self.layers.iter().enumerate() {
            steps.push(Step::Alloc(now, *floats));
            steps.extend((0..=now).filter(|layer| last[*layer] == now).map(Step::Free));
        }
        // An output that no layer reads is the result.
        steps.extend((0..last.len()).filter(|layer| last[*layer] == usize::MAX).map(Step::Free));
        steps
    }
}

/// ResNet-50 on a 224 × 224 image: convolutions, sums of the residual blocks, pooling, classifier.
pub(crate) fn resnet50() -> Vec<Step> {
    let mut net = Network::default();
    let image = net.add(3 * 224 * 224, &[]);
    let first = net.add(64 * 112 * 112, &[image]);
    let mut at = net.add(64 * 56 * 56, &[first]);
    let mut side = 56;
    for (stage, (blocks, middle)) in [(3, 64), (4, 128), (6, 256), (3, 512)].into_iter().enumerate()
    {
        for block in 0..blocks {
            let before = side;
            if stage > 0 && block == 0 {
                side /= 2;
            }
            let one = net.add(middle * before * before, &[at]);
            let two = net.add(middle * side * side, &[one]);
            let three = net.add(4 * middle * side * side, &[two]);
            let beside = match block {
                0 => net.add(4 * middle * side * side, &[at]),
                _ => at,
            };
            at = net.add(4 * middle * side * side, &[three, beside]);
        }
    }
    let pooled = net.add(2048, &[at]);
    net.add(1000, &[pooled]);
    net.steps()
}

/// YOLOv8n on a 640 × 640 image, with its three detection heads.
pub(crate) fn yolov8n() -> Vec<Step> {
    let mut net = Network::default();
    let image = net.add(3 * 640 * 640, &[]);
    let p1 = net.add(16 * 320 * 320, &[image]);
    let p2 = net.add(32 * 160 * 160, &[p1]);
    let p2 = c2f(&mut net, 32, 160, 1, p2);
    let p3 = net.add(64 * 80 * 80, &[p2]);
    let p3 = c2f(&mut net, 64, 80, 2, p3);
    let p4 = net.add(128 * 40 * 40, &[p3]);
    let p4 = c2f(&mut net, 128, 40, 2, p4);
    let p5 = net.add(256 * 20 * 20, &[p4]);
    let p5 = c2f(&mut net, 256, 20, 1, p5);
    let p5 = sppf(&mut net, 256, 20, p5);
    let up = net.add(256 * 40 * 40, &[p5]);
    let joined = net.add(384 * 40 * 40, &[up, p4]);
    let n4 = c2f(&mut net, 128, 40, 1, joined);
    let up = net.add(128 * 80 * 80, &[n4]);
    let joined = net.add(192 * 80 * 80, &[up, p3]);
    let small = c2f(&mut net, 64, 80, 1, joined);
    let down = net.add(64 * 40 * 40, &[small]);
    let joined = net.add(192 * 40 * 40, &[down, n4]);
    let middle = c2f(&mut net, 128, 40, 1, joined);
    let down = net.add(128 * 20 * 20, &[middle]);
    let joined = net.add(384 * 20 * 20, &[down, p5]);
    let large = c2f(&mut net, 256, 20, 1, joined);
    let heads = [(small, 80), (middle, 40), (large, 20)].map(|(at, side)| head(&mut net, side, at));
    net.add(84 * 8400, &heads);
    net.steps()
}

/// A convolution, bottlenecks of half the channels, the concatenation of all, another convolution.
fn c2f(net: &mut Network, channels: usize, side: usize, bottlenecks: usize, input: usize) -> usize {
    let half = channels / 2 * side * side;
    let split = net.add(2 * half, &[input]);
    let mut parts = vec![split];
    for _ in 0..bottlenecks {
        let from = *parts.last().unwrap_or(&split);
        let one = net.add(half, &[from]);
        parts.push(net.add(half, &[one, from]));
    }
    let joined = net.add((2 + bottlenecks) * half, &parts);
    net.add(2 * half, &[joined])
}

fn sppf(net: &mut Network, channels: usize, side: usize, input: usize) -> usize {
    let half = channels / 2 * side * side;
    let mut parts = vec![net.add(half, &[input])];
    for n in 0..3 {
        let pooled = net.add(half, &[parts[n]]);
        parts.push(pooled);
    }
    let joined = net.add(4 * half, &parts);
    net.add(2 * half, &[joined])
}

/// Three convolutions for boxes and three for 80 classes.
fn head(net: &mut Network, side: usize, input: usize) -> usize {
    let mut branch = |channels: usize| {
        let one = net.add(channels * side * side, &[input]);
        let two = net.add(channels * side * side, &[one]);
        net.add(channels * side * side, &[two])
    };
    let (boxes, classes) = (branch(64), branch(80));
    net.add(144 * side * side, &[boxes, classes])
}

/// BERT-base on 128 tokens.
pub(crate) fn bert_base() -> Vec<Step> {
    const WIDE: usize = 128 * 768;
    let mut net = Network::default();
    let embedded = net.add(WIDE, &[]);
    let mut at = net.add(WIDE, &[embedded]);
    for _ in 0..12 {
        let (query, key, value) =
            (net.add(WIDE, &[at]), net.add(WIDE, &[at]), net.add(WIDE, &[at]));
        let scores = net.add(12 * 128 * 128, &[query, key]);
        let shares = net.add(12 * 128 * 128, &[scores]);
        let context = net.add(WIDE, &[shares, value]);
        let projected = net.add(WIDE, &[context]);
        let sum = net.add(WIDE, &[projected, at]);
        let attended = net.add(WIDE, &[sum]);
        let grown = net.add(4 * WIDE, &[attended]);
        let active = net.add(4 * WIDE, &[grown]);
        let shrunk = net.add(WIDE, &[active]);
        let sum = net.add(WIDE, &[shrunk, attended]);
        at = net.add(WIDE, &[sum]);
    }
    net.add(768, &[at]);
    net.steps()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that each block is freed once, after it was allocated. Returns the floats of all blocks, and the most at a time.
    fn check(steps: &[Step]) -> (usize, usize) {
        let mut live = std::collections::HashMap::new();
        let (mut all, mut now, mut most) = (0, 0, 0);
        for step in steps {
            match *step {
                Step::Alloc(block, floats) => {
                    assert!(floats > 0 && live.insert(block, floats).is_none(), "{block} twice");
                    (all, now) = (all + floats, now + floats);
                    most = most.max(now);
                }
                Step::Free(block) => now -= live.remove(&block).expect("an allocated block"),
            }
        }
        assert!(live.is_empty(), "{} left", live.len());
        (all, most)
    }

    #[test]
    fn blocks_are_freed_once_and_early() {
        for steps in [resnet50(), yolov8n(), bert_base()] {
            let (all, most) = check(&steps);
            assert!(most * 4 < all, "{most} of {all} at a time");
        }
    }

    #[test]
    fn resnet50_has_the_layers_of_the_paper() {
        // 53 convolutions, 16 sums, the image, two poolings, the classifier.
        let layers = resnet50().iter().filter(|step| matches!(step, Step::Alloc(..))).count();
        assert_eq!(layers, 53 + 16 + 1 + 2 + 1);
    }
}
