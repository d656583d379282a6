"""Models that pytorch_files.py trains for three steps and saves."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 8, 1), Block(8, 8, 1))
        self.layer2 = nn.Sequential(Block(8, 16, 2), Block(16, 16, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))

    @staticmethod
    def batch():
        return torch.randn(4, 3, 12, 12)


class Transformer(nn.Module):
    """The output layer has the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.position = nn.Parameter(torch.randn(1, 12, 16) / 8)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.triu(torch.ones(12, 12, dtype=torch.bool), 1))

    def forward(self, x):
        return self.head(self.encoder(self.embed(x) + self.position, self.mask))

    @staticmethod
    def batch():
        return torch.randint(0, 50, (3, 12))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(12, 7, batch_first=True)
        self.out = nn.Linear(7, 2)

    def forward(self, x):
        return self.out(self.gru(self.lstm(x)[0])[0][:, -1])

    @staticmethod
    def batch():
        return torch.randn(3, 4, 5)


MODELS = {"resnet": Resnet, "transformer": Transformer, "recurrent": Recurrent}


def trained(name, optimizer):
    """Returns a model and its optimizer after three steps; `optimizer` makes it from the parameters."""
    torch.manual_seed(len(name))
    model = MODELS[name]()
    state = optimizer(model.parameters())
    for _ in range(3):
        state.zero_grad()
        output = model(model.batch())
        (output * torch.linspace(-1, 1, output.numel()).reshape(output.shape)).mean().backward()
        state.step()
    return model, state
