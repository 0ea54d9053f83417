"""A dataset directory to a trained, exported and served model. Never imports Beam.

task, predict, evaluate, verify    the commands
spec        options, hyper-parameters, the task spec of a model
data        shards to batches of examples
images      stored images to model inputs: decode, crop, augment, normalize
models      the models that ship, and custom models
strategies  where steps run: one device, replicas, a cluster, a TPU
loop        training: evaluation, early stopping, signals, progress
model_dir   the model directory: checkpoints, `model.json`, clean-up, failures explained
export      served models: receivers, outputs, the checks before an export gets its number
predicting  rows and images through an exported model
estimator   TensorFlow's Estimator on a TensorFlow that no longer ships it
"""
