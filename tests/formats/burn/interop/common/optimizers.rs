// Records of optimizers after one step on a model of one layer.

use crate::files::{File, stem};
use crate::flat::{compare, flat};
use crate::net::{Fill, Lin};
use burn::backend::{Autodiff, NdArray};
use burn::module::AutodiffModule;
#[cfg(not(feature = "no_amsgrad"))]
use burn::optim::AdamWConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer, RmsPropConfig, SgdConfig};
use burn::record::*;
use burn::tensor::{Tensor, TensorData};
use std::path::Path;

type A = Autodiff<NdArray<f32>>;
type Full = FullPrecisionSettings;

/// A layer of two rows and three columns, with the identifiers 1001 and 1002.
fn model() -> Lin<A> {
    let mut fill = Fill::<A>::new(0);
    fill.next = 1;
    let mut lin = fill.lin(2, 3, true);
    lin.weight = lin.weight.map(Tensor::require_grad);
    lin.bias = lin.bias.map(|bias| bias.map(Tensor::require_grad));
    lin
}

fn stepped<O: Optimizer<Lin<A>, A>>(mut optimizer: O) -> O {
    let lin = model();
    let input = TensorData::new(vec![1.0f32, -2.0, 0.5, 3.0], [2, 2]);
    let input = Tensor::<A, 2>::from_data(input, &Default::default());
    let bias = lin.bias.as_ref().unwrap().val().unsqueeze::<2>();
    let loss = input.matmul(lin.weight.val()).add(bias).powf_scalar(2.0).sum();
    let gradients = GradientsParams::from_grads(loss.backward(), &lin);
    optimizer.step(0.01, lin, gradients);
    optimizer
}

fn file<O, R>(name: &str, recorder: R, make: fn() -> O) -> File
where
    O: Optimizer<Lin<A>, A> + 'static,
    R: FileRecorder<A> + Clone + 'static,
    Lin<A>: AutodiffModule<A>,
{
    let text = |optimizer: O| flat(&optimizer.to_record().into_item::<Full>());
    let load = {
        let recorder = recorder.clone();
        move |path: &Path| -> Result<String, String> {
            let record: O::Record = Recorder::<A>::load(&recorder, stem(path), &Default::default())
                .map_err(|e| e.to_string())?;
            Ok(text(make().load_record(record)))
        }
    };
    let again = load.clone();
    File {
        name: name.to_string(),
        write: Box::new(move |path| {
            Recorder::<A>::record(&recorder, stepped(make()).to_record(), stem(path))
                .map_err(|e| e.to_string())
        }),
        expect: Box::new(load),
        check: Box::new(move |path| compare(&again(path)?, &text(stepped(make())))),
    }
}

fn three<O: Optimizer<Lin<A>, A> + 'static>(name: &str, make: fn() -> O) -> Vec<File> {
    vec![
        file(&format!("{name}.mpk"), NamedMpkFileRecorder::<Full>::new(), make),
        file(&format!("{name}.bin"), BinFileRecorder::<Full>::new(), make),
        file(&format!("{name}.json"), PrettyJsonFileRecorder::<Full>::new(), make),
    ]
}

pub fn optimizer_files() -> Vec<File> {
    let mut files = three("optimizer", || AdamConfig::new().init::<A, Lin<A>>());
    #[cfg(not(feature = "no_amsgrad"))]
    files.extend(three("adamw", || AdamWConfig::new().with_amsgrad(true).init::<A, Lin<A>>()));
    files.extend(three("sgd", || {
        SgdConfig::new().with_momentum(Some(MomentumConfig::new())).init::<A, Lin<A>>()
    }));
    files.extend(three("rmsprop", || RmsPropConfig::new().with_centered(true).init::<A, Lin<A>>()));
    files
}
