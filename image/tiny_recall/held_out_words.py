"""The evaluation's own word lists: candidates, of which ``held_out.py`` takes a third.

Only data, and never read by training.
"""

NAMES = """
Adrian Alana Alfred Alicia Alina Alistair Amanda Amelia Anders Angela Annika April Ariel Arnold
Ashley Aurora Beatrice Benedict Bernard Beth Bjorn Brenda Bridget Bruce Caleb Carla Caroline Casey
Cassandra Catherine Celine Chad Charlotte Christine Christopher Cindy Clement Clifford Colin Connor
Constance Craig Curtis Cynthia Damian Daphne Darren Deborah Denise Derek Desmond Diana Dominic
Donald Doris Dorothy Douglas Duncan Dylan Edith Edmund Eleanor Elizabeth Eloise Ernest Eugene
Evelyn Faith Ferdinand Flora Frances Freya Gareth Gavin Genevieve Gerald Gideon Gilbert Gillian
Gloria Gordon Graham Gregory Gwen Harold Harriet Heather Hector Herbert Hilda Holly Horace Howard
Hubert Imogen Isabel Ivy Jacob Janet Jason Jennifer Jeremy Jessica Joanne Jonathan Jordan Joseph
Joshua Josephine Joyce Judith Julian Katherine Keith Kenneth Kimberly Kirsten Lawrence Leonard
Lewis Lillian Linda Logan Lorenzo Louisa Lydia Magnus Malcolm Margaret Marilyn Marion Martin
Matilda Matthew Maurice Melanie Melissa Mildred Miranda Mitchell Monica Morgan Muriel Nancy Naomi
Natalie Nathan Nicholas Nicole Nigel Norman Olivia Ophelia Oswald Pamela Patricia Patrick Penelope
Philip Phoebe Preston Rebecca Regina Reginald Rhoda Richard Robin Roderick Roger Roland Rosemary
Rowena Rupert Russell Samantha Samuel Sandra Sebastian Shirley Sidney Sigrid Spencer Stanley
Stephanie Stephen Stuart Susan Sylvia Tabitha Teresa Terence Theodore Timothy Tobias Tristan Ursula
Valerie Vanessa Vernon Victoria Vincent Virginia Vivian Wallace Wendy Wilfred William Winifred
Yvonne
"""

CITIES = """
Aberdeen Adelaide Albuquerque Alexandria Amarillo Antwerp Atlanta Augsburg Austin Baltimore
Bangalore Bath Belfast Bilbao Birmingham Bordeaux Bratislava Bremen Brighton Brisbane Bristol
Bruges Bucharest Cambridge Canberra Caracas Casablanca Chennai Cincinnati Cleveland Coimbra Colombo
Constanta Coventry Damascus Darwin Dortmund Dundee Durban Dusseldorf Eindhoven Erfurt Essen Exeter
Fargo Fresno Fukuoka Gdansk Gothenburg Granada Groningen Guadalajara Guangzhou Haarlem Halifax
Hangzhou Hanover Harare Heidelberg Hobart Honolulu Hyderabad Innsbruck Inverness Jerusalem
Johannesburg Kampala Kansas Karlsruhe Kathmandu Kingston Kolkata Kuwait Lausanne Leicester Leiden
Lille Limerick Linz Lucerne Luxembourg Maastricht Malaga Manchester Mannheim Maputo Memphis
Minneapolis Mombasa Monaco Montevideo Nagasaki Nagoya Nantes Nashville Newcastle Norwich Nottingham
Nuremberg Odense Omaha Orlando Osnabruck Palermo Panama Philadelphia Phoenix Pittsburgh Plymouth
Portland Potsdam Pretoria Reykjavik Richmond Rostock Sacramento Sapporo Sheffield Shenzhen Skopje
Stavanger Stuttgart Surabaya Swansea Tacoma Tampere Tbilisi Thessaloniki Toulouse Trondheim Tucson
Ulm Uppsala Vancouver Verona Wichita Winnipeg Wroclaw Wuhan Yerevan Yokohama
"""

COLORS = """
almond aquamarine ash auburn bluish brick bubblegum buttercup camel candy caramel carmine cerise
cerulean champagne charcoal chartreuse chestnut cinnamon claret cobalt coffee cornflower cranberry
denim ebony eggplant flamingo flax forest frost ginger grape graphite hazel heather honey iris jet
juniper kiwi lapis licorice mahogany malachite mango marigold melon midnight mocha moss mulberry
obsidian onyx orchid papaya periwinkle persimmon petrol pewter pistachio platinum porcelain puce
quartz raspberry russet saffron sangria seafoam slate smoke snow spruce steel straw tangerine taupe
terracotta thistle tomato topaz ultramarine umber vanilla vermilion wheat wine wisteria
"""

FOODS = """
almonds anchovies artichokes asparagus avocado bagels baguette barley basil bacon beef beetroot
biscuits blueberries borscht brownies burritos cabbage calamari cashews cauliflower caviar celery
cereal chowder churros clams coconut crab crepes croissants cucumber cupcakes custard dates
doughnuts enchiladas falafel fajitas fondue focaccia fudge gelato gnocchi goulash granola gravy
guacamole haggis halibut hazelnuts herring jam jelly kale kiwis lamb leeks lettuce lobster macaroni
meatballs moussaka mussels nachos nougat oatmeal omelette paella paprika parsnips pastrami pesto
pheasant pickles pierogi plantains polenta pretzels pudding quiche quinoa radishes raisins
raspberries ravioli rhubarb sauerkraut scallops schnitzel scones shrimp souffle spareribs sprouts
squash strudel tapas tempura tiramisu toast toffee tortellini tortillas truffles turnips veal
venison watermelon yams zucchini
"""

ANIMALS = """
aardvark albatross alligator alpaca anaconda anteater antelope armadillo baboon badger bobcat
bumblebee capybara caribou caterpillar centipede chameleon chimpanzee chinchilla chipmunk cobra
cockatoo condor cougar coyote cricket cuckoo dingo dodo dormouse dromedary earwig echidna egret emu
finch firefly flamingo flounder gazelle gecko gerbil gibbon grasshopper grizzly grouse guppy
haddock hippo hornet hummingbird hyena ibex iguana impala jackal jackdaw jellyfish kestrel
kingfisher kookaburra ladybug lapwing lemming locust macaw manatee mandrill mantis marmot meerkat
mongoose mosquito muskrat narwhal newt nightingale ocelot opossum orangutan oriole osprey ostrich
oyster pangolin partridge pelican pheasant piranha platypus polecat porcupine possum puffin python
quail quokka reindeer rooster salamander scorpion seahorse skunk sloth squid starfish stingray
stoat swallow tapir tarantula termite toad toucan viper vole vulture wallaby warthog wildebeest
wolverine wombat woodpecker yak
"""

HOBBIES = """
aerobics animation antiques aquariums badminton barbecue beekeeping billiards birdwatching blogging
bodybuilding bonsai bookbinding bouldering bowls brewing bridge calligraphy canoeing canyoning
caving checkers cheerleading clubbing collage collecting crosswords cricket croquet curling darts
debating dominoes drumming falconry farming film fitness flute foraging fossils genealogy
geocaching geology gliding graffiti handball herbalism hurling improv jewelry jigsaws kickboxing
kites lacrosse languages leatherwork locksmithing marathons marquetry mahjong microscopy minerals
mosaics motorcycles mountaineering netball numismatics opera orienteering parachuting paragliding
parkour pilates poker polo programming puppetry puzzles quilting rafting robotics saxophone
scrabble scouting scrapbooking scuba shooting snorkeling snowboarding softball speedskating squash
stamps storytelling sudoku taekwondo tango tapestry taxidermy trampoline triathlon trombone trumpet
ukulele unicycling volunteering whittling winemaking woodwork zumba
"""

PETS = """
Admiral Amigo Apollo Aramis Astro Atlas Banjo Basil Baxter Beethoven Bentley Bingo Blossom Bootsie
Bramble Brandy Brutus Bubba Buster Butterscotch Button Cadbury Calypso Captain Chanel Chewie Clover
Comet Copper Crackers Cricket Crumpet Cupcake Dakota Dash Diesel Digger Dixie Dolly Dotty Dusty
Echo Ember Fergus Figaro Finnegan Freckles Frodo Gizmo Gulliver Gypsy Harley Hercules Hobbes Hooch
Huckleberry Iggy Indigo Jackson Jellybean Jingles Kipper Lancelot Legolas Licorice Maverick
Meatball Mango Marble Marmalade Mercury Merlin Mochi Moose Mowgli Muffin Napoleon Nibbles Noodle
Nugget Nutmeg Olive Orion Paddington Panda Paprika Pebbles Percy Pickles Pippin Pixie Pogo Popcorn
Puddles Quincy Radar Raffles Rambo Ranger Rascal Remus Ringo Roscoe Sabre Samson Sassy Scooby
Shelby Snickers Snoopy Socrates Sprocket Sprout Stormy Tango Tinkerbell Titan Truffle Tucker Tulip
Tux Waffles Wilbur Winnie Wookie Yoda Zeus Zorro
"""
